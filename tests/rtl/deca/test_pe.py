"""DECA's element in the simulator: the bits of `tiles.unpack`, the cycles of the clocked model, whoever waits."""

import random

import pytest

from tests.rtl.deca import lanes
from tests.rtl.deca.jobs import assert_as_modelled, random_jobs, random_latency
from tests.simulate.units.matrices import FORMATS, is_equal, packed
from tilepress.rtl.deca import Parameters
from tilepress.rtl.deca.testbench import Job, run

# One of each kind: widths of codes, scales, zero points, groups of half a tile.
KINDS = ("bf16", "bf8", "mxfp4", "int7:g16", "int8:row", "uint4:g128", "int3:g48")


def test_bits_and_cycles_of_every_kind_one_after_another():
    densities = {"bf16": 0.0, "mxfp4": 1.0}
    jobs = [Job(packed(name, densities.get(name, 0.3), 16, 64), random_latency(3, 9)) for name in KINDS]
    assert_as_modelled(Parameters(8, 4, KINDS), jobs)


def test_a_squash_leaves_nothing_behind():
    """Lines of squashed tiles still come, and are dropped; what is left takes as long as on an unused element."""
    matrix = packed("bf8", 0.4, 16, 96)
    jobs = [Job(matrix, random_latency(7, 12), squash_at) for squash_at in ([1, 30, 31], [20, 38, 60])]
    assert_as_modelled(Parameters(8, 4), jobs)


def test_back_pressure_neither_loses_nor_doubles():
    """Whoever is willing and when: every row comes once, in order, and what is offered stays (see `testbench`)."""
    generator = random.Random(1)
    matrix = packed("bf8", 0.4, 16, 96)
    willing = [lambda share=share: generator.random() < share for share in (1, 0.5, 0.2)]
    jobs = [Job(matrix, random_latency(3, 12), (), allows) for allows in willing]
    quick, slow, slower = run(Parameters(8, 4), jobs)
    assert all(is_equal(matrix, result.values) for result in (quick, slow, slower))
    assert quick.finished[-1] < slow.finished[-1] < slower.finished[-1]


def test_lanes_at_the_corners_and_at_random():
    questions = [*lanes.corners(), *lanes.random(500)]
    assert lanes.ask(questions) == [lanes.expected(question) for question in questions]


@pytest.mark.slow
@pytest.mark.parametrize("width, tables", [(32, 8), (64, 16), (32, 5), (128, 3), (1, 1)])
def test_every_size(width, tables):
    formats = ("mxfp6", "bf8", "bf16")
    jobs = [Job(packed(name, 0.4, 16, 64), random_latency(1, 9), [25]) for name in formats]
    assert_as_modelled(Parameters(width, tables, formats), jobs)


@pytest.mark.slow
def test_every_format_at_random():
    assert_as_modelled(Parameters(16, 4, tuple(FORMATS)), list(random_jobs(1500, 16)))


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"W": 24}, "a width divides 512, as 8, 32 and 64 do, not 24"),
        ({"L": 0}, "at least one table is needed, not 0"),
        ({"W": 8, "L": 9}, "of more tables than W = 8 some are never read: L is at most that, not 9"),
        ({"formats": ()}, "an element needs at least one format"),
        ({"formats": ("fp16",)}, "DECA takes codes of up to 8 bits, or bf16, not fp16"),
        ({"formats": ("fp5",)}, "unknown format 'fp5'"),
        ({"sqq_lines": 16}, "sqq_lines is a power of two of at least 17, a tile's codes, not 16"),
        ({"sqq_lines": 48}, "sqq_lines is a power of two of at least 17, a tile's codes, not 48"),
        ({"epoch_bits": 0}, "epoch_bits is 1 to 64, not 0"),
        ({"address_bits": 65}, "address_bits is 1 to 64, not 65"),
    ],
)
def test_parameters_that_no_element_can_have(fields, text):
    with pytest.raises(ValueError, match=text):
        Parameters(**fields)
