"""Machines in YAML and their units, stepped to the bit: the same cycles, the same traffic."""

import pytest

from tests.simulate.units.oracle import external_reads
from tilepress.hardware import read_accelerator
from tilepress.simulate.arrays import Gemm
from tilepress.simulate.arrays.plan import pinned_plan
from tilepress.simulate.arrays.workload import Operand
from tilepress.simulate.units import anda_apu, anda_compressor, harmonia_converter, harmonia_pe

ANDA, HARMONIA = read_accelerator("anda"), read_accelerator("harmonia")


@pytest.mark.parametrize("mantissa", range(1, 17))
def test_anda_takes_a_sign_and_then_a_plane_a_cycle(mantissa):
    gemm = Gemm("any", 1, 64, 1, 1, Operand("bfp", 9, mantissa), Operand("int4", 4), Operand("fp16", 16))
    cycles = pinned_plan(ANDA, gemm).group_cycles
    assert cycles == anda_apu.cycles(101, mantissa) - anda_apu.cycles(100, mantissa)
    assert ANDA.array.group == anda_apu.LANES


@pytest.mark.parametrize("mantissa", [1, 7, 16])
def test_anda_compresses_as_its_compressor_does(mantissa):
    converter = ANDA.converter
    rounds = converter.values // ANDA.array.group
    cycles = converter.cycles.fixed + converter.cycles.per_bit * mantissa
    assert cycles == anda_compressor.cycles(rounds, mantissa) == anda_compressor.cycles_per_round(mantissa)


def test_harmonia_multiplies_as_its_element_does():
    """A PE is two units here, each of which takes a group in twice the time."""
    for mode, stepped in zip(HARMONIA.modes, harmonia_pe.Mode, strict=True):
        groups = 4 * harmonia_pe.SUB_PES
        more = harmonia_pe.cycles([stepped] * 2 * groups) - harmonia_pe.cycles([stepped] * groups)
        assert mode.cycles.fixed / 2 == pytest.approx(more / groups)


@pytest.mark.parametrize("path", harmonia_converter.Path)
def test_harmonia_converts_eight_values_a_cycle(path):
    one, two = (harmonia_converter.cycles(tokens, 512, path) for tokens in (320, 640))
    assert (two - one) == 320 * 512 / HARMONIA.converter.values * HARMONIA.converter.cycles.fixed


@pytest.mark.parametrize("rows, columns", [(1, 4096), (64, 100), (1000, 640), (4096, 512)])
@pytest.mark.parametrize("order", ["column-major", "row-major"])
def test_traffic_is_that_of_the_dataflow(rows, columns, order):
    same = Operand("bfp", 8, 8)  # as many bits on both sides: values can be counted
    plan = pinned_plan(HARMONIA, Gemm("scores", rows, 256, columns, 1, same, same, Operand("fp16", 0.0)), order)
    assert plan.traffic.total == 8 * external_reads(order, rows, 256, columns, plan.rows, plan.columns)
