"""What units are given while energy is measured is a layer's work: they answer with its products, as torch has them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tilepress.formats.bfp import BFP, rounded
from tilepress.rtl.energy import random_operands
from tilepress.rtl.energy.case import DOTS, TOKENS
from tilepress.rtl.energy.integers import chunks, m_ant_group
from tilepress.rtl.energy.operands import neurons
from tilepress.rtl.energy.stimuli import cases
from tilepress.rtl.units import NAMES, unit_of
from tilepress.simulate.units.int8_quantiser import OfflineQuantiser, OnlineQuantiser
from tilepress.simulate.units.m_ant_mac import value
from tilepress.tiles import pack, unpack

OPERANDS = random_operands(tokens=32, size=128)
SMALL = {"deca-pe": ("W=8", "L=4", "formats=bf8"), "anda-compressor": ("lanes=1",)}


def words(bits):
    return [int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little") for row in bits]


def totals(case):
    """FP32 numbers that stand while `done` is up; operations."""
    trace, operations, _ = case.trace()
    patterns = np.array(words(trace.outputs["total"][trace.outputs["done"][:, 0] == 1]), np.uint32)
    return torch.from_numpy(patterns.view(np.float32)), operations


def expected(group, mantissa):
    """Dot products of rows with neurons of int4, activations rounded to block floating point."""
    x, weights = OPERANDS.activations[:DOTS].half(), unpack(pack(OPERANDS.weights[:DOTS], f"int4:g{group}"))
    x = x.float() if mantissa is None else rounded(x, BFP(group, mantissa)).float()
    return (x.double() * weights.double()).sum(1).float()


LINEAR = [
    ("anda-apu", "m=1", 64, 1, 6),
    ("anda-apu", "m=8", 64, 8, 6),
    ("anda-apu", "m=16", 64, 16, 6),
    ("fp-fp", "linear", 64, None, 384),
    ("fp-int", "linear", 64, None, 384),
    ("figna", "linear", 64, 14, 6),
    ("ifpu", "linear", 64, 14, 6),
    ("harmonia-pe", "m8w4", 32, 8, 3),
]


@pytest.mark.parametrize("name, case, group, mantissa, operations", LINEAR)
def test_dot_products(name, case, group, mantissa, operations):
    (chosen,) = [one for one in cases(unit_of(name), OPERANDS) if one.name == case]
    result, count = totals(chosen)
    assert count == operations and chosen.items * count == DOTS * 128
    tolerance = 2e-3 if name == "fp-fp" else 1e-5  # whose scaled weights are FP16
    torch.testing.assert_close(result, expected(group, mantissa), rtol=tolerance, atol=tolerance)


def half_totals(case):
    """FP16 numbers that stand while `done` is up."""
    trace, _, _ = case.trace()
    patterns = np.array(words(trace.outputs["total"][trace.outputs["done"][:, 0] == 1]), np.uint16)
    return torch.from_numpy(patterns.view(np.float16)).float()


def of_heads(queries, keys):
    """Products of FP16 heads of 64 channels, of the first tokens."""
    left, right = (values[:DOTS].half().double().reshape(-1, 64) for values in (queries, keys))
    return (left * right).sum(1).float()


def test_attention_in_halves():
    heads, names = of_heads(OPERANDS.queries, OPERANDS.keys), ("fp-fp", "fp16-mac")
    singles, halves = (cases(unit_of(name), OPERANDS)[1] for name in names)
    assert singles.name == halves.name == "attention"
    torch.testing.assert_close(totals(singles)[0], heads, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(half_totals(halves), heads, rtol=1e-2, atol=5e-2)


def test_products_with_sums_in_halves():
    linear = cases(unit_of("fp16-mac"), OPERANDS)[0]
    torch.testing.assert_close(half_totals(linear), expected(64, None), rtol=1e-2, atol=5e-2)
    (groups,) = cases(unit_of("fp16-mac", ["weight_format=int4"]), OPERANDS)
    scales = torch.tensor([one.scales for one in neurons(OPERANDS.weights[:DOTS], 4, 64)])
    result = (half_totals(groups).reshape(DOTS, -1) * scales).sum(1)
    torch.testing.assert_close(result, expected(64, None), rtol=1e-2, atol=5e-2)


def integer_totals(case, output="total"):
    """Signed numbers that stand while `done` is up."""
    trace, operations, _ = case.trace()
    width = trace.outputs[output].shape[1]
    patterns = torch.tensor(words(trace.outputs[output][trace.outputs["done"][:, 0] == 1]))
    return torch.where(patterns >= 1 << width - 1, patterns - (1 << width), patterns).double(), operations


def test_chunks_of_channels_are_summed_as_one():
    """Channels of very different sizes, and chunks that have none."""
    sizes = 2.0 ** -torch.tensor([0.0, 1.5, 3.5, 4.5, 6.5, 20.0]).repeat(22)[:128]
    operands = replace(OPERANDS, activations=OPERANDS.activations.clamp(-1, 1) * sizes)
    result, operations = integer_totals(*cases(unit_of("int-mac"), operands))
    of_channels = chunks(operands.activations, 8)
    assert [len(channels) for channels in of_channels.channels] == [22, 22, 0, 21, 21, 0, 21, 21]
    assert operations == DOTS * (128 + 2)
    x, weights = operands.activations[:DOTS].double(), operands.weights[:DOTS].double()
    scales = of_channels.last_scale * weights.abs().amax(1) / 127
    tolerance = 0.01 * float((x.norm(dim=1) * weights.norm(dim=1)).max())
    torch.testing.assert_close(result * scales, (x * weights).sum(1), rtol=0, atol=tolerance)


def test_groups_of_m_ants_type():
    result, operations = integer_totals(*cases(unit_of("m-ant-mac"), OPERANDS))
    x, weights = (values[:DOTS].double().reshape(-1, 64) for values in (OPERANDS.activations, OPERANDS.weights))
    groups = [m_ant_group(one.float()) for one in weights]
    integers = (x * 127 / x.abs().amax(1, keepdim=True)).round()
    values = torch.tensor([[value(code, one.coefficient) for code in one.codes] for one in groups]).double()
    assert operations == DOTS * 128 and len({one.coefficient for one in groups}) > 1
    assert torch.equal(result, (integers * values).sum(1))
    (sums,) = cases(unit_of("m-ant-sums"), OPERANDS)
    multiplied, shifted = (integer_totals(sums, output)[0] for output in ("multiplied", "shifted"))
    assert torch.equal(result, torch.tensor([one.coefficient for one in groups]) * multiplied + shifted)
    scales = torch.tensor([one.scale for one in groups])[:, None]
    assert 0 < (values * scales - weights).square().mean() < 0.01


@pytest.mark.parametrize("case, mantissa", [("m8m4", 4), ("m8m8", 8)])
def test_attention(case, mantissa):
    (chosen,) = [one for one in cases(unit_of("harmonia-pe"), OPERANDS) if one.name == case]
    result, count = totals(chosen)
    assert chosen.items * count == TOKENS * 128
    queries, keys = (values[:TOKENS].half() for values in (OPERANDS.queries, OPERANDS.keys))
    left, right = rounded(queries, BFP(32, 8)).double(), rounded(keys, BFP(32, mantissa)).double()
    torch.testing.assert_close(result, (left * right).sum(1).float(), rtol=1e-5, atol=1e-5)


def test_quantisers_take_activations():
    """Codes of two blocks of tokens; of the last column they stand after the last cycle."""
    (offline,), (online,) = (
        cases(unit_of("int8-quantiser", [f"scale={kind}"]), OPERANDS) for kind in ("offline", "online")
    )
    values, per_channel = OPERANDS.activations[:16].half(), OPERANDS.activations.abs().amax(0)
    calibrated = OfflineQuantiser().quantise(values, (127 / per_channel).half()).codes
    for case, codes in ((offline, calibrated), (online, OnlineQuantiser().quantise(values).codes)):
        trace, operations, _ = case.trace()
        assert operations * case.items == values.numel()
        words = np.packbits(trace.outputs["codes"], axis=1, bitorder="little").view(np.int8)
        seen = words[trace.outputs["codes_valid"][:, 0] == 1]
        expected = codes.reshape(2, 8, 128).transpose(0, 2, 1).reshape(-1, 8)
        assert np.array_equal(seen, expected[: len(seen)]) and len(seen) >= len(expected) - 1


def test_a_group_longer_than_the_rows_of_data():
    with pytest.raises(ValueError, match="rows of 128 values have no group of 200: take a smaller group"):
        cases(unit_of("int8-quantiser", ["scale=online", "group=200"]), OPERANDS)


def test_tiles_begin_after_tables_are_filled():
    unit = unit_of("deca-pe", SMALL["deca-pe"])
    half = next(case for case in cases(unit, OPERANDS) if case.name == "bf8, 50% kept")
    trace, tiles, begin = half.trace()
    assert tiles == 64 * 64 // 512 and begin >= 256  # entries of a table for eight bits
    assert not trace.inputs["tile_0_valid"][:begin].any() and trace.inputs["tile_0_valid"][begin]
    assert trace.inputs["write_valid"].sum() == 256 and not trace.inputs["write_valid"][begin:].any()
    rows = sum(int((trace.outputs[f"row_{n}_valid"] & trace.inputs[f"row_{n}_ready"]).sum()) for n in range(2))
    assert rows == 16 * tiles


@pytest.mark.parametrize("name", NAMES)
def test_every_unit_has_cases(name):
    every = cases(unit_of(name, SMALL.get(name, ())), OPERANDS)
    assert every and len({case.name for case in every}) == len(every)
    assert all(case.items > 0 and case.operation for case in every)


@pytest.mark.parametrize(
    "name, output",
    [("harmonia-converter", "converted_valid"), ("harmonia-offsets", "done"), ("anda-compressor", "word_valid")],
)
def test_others_answer(name, output):
    case = cases(unit_of(name, SMALL.get(name, ())), random_operands(tokens=64, size=128))[0]
    trace, operations, _ = case.trace()
    answers = int(trace.outputs[output].sum())
    per_operation = {"harmonia-converter": 4, "harmonia-offsets": 1, "anda-compressor": 2}[name]  # 32 / 8; 1 + 1 planes
    assert abs(answers - per_operation * operations) <= 1  # the last stands after the last cycle


def test_subtractor_gives_halves():
    trace, operations, _ = cases(unit_of("harmonia-subtractor"), OPERANDS)[0].trace()
    assert trace.cycles == operations
    smooth = np.packbits(trace.outputs["smooth"], axis=1, bitorder="little").view(np.float16).astype(np.float32)
    keys = np.packbits(trace.inputs["keys"], axis=1, bitorder="little").view(np.float16).astype(np.float32)
    offset = keys - smooth
    chosen = np.abs(offset).max(axis=1) > 0
    assert chosen.sum() == 4 * operations // 128  # `top` channels of 128


@pytest.mark.parametrize("lanes", [3, 6])
def test_lanes_that_do_not_divide_a_group_take_zeros_at_its_end(lanes):
    result, count = totals(cases(unit_of("figna", (f"lanes={lanes}",)), OPERANDS)[0])
    assert count == 6
    torch.testing.assert_close(result, expected(64, 14), rtol=1e-5, atol=1e-5)
