"""Designs side by side, and what no other beats."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilepress.hardware import MachineError, read_accelerator
from tilepress.simulate.arrays import PINNED, Task
from tilepress.simulate.arrays.compare import (
    Measured,
    Point,
    Setting,
    compare,
    front,
    loss_sign,
    points,
    shared_array,
    takes,
)
from tilepress.simulate.arrays.costs import ARRAY, area
from tilepress.simulate.layers import find_transformer

MODEL = find_transformer("smollm2-135m")
DESIGNS = ["anda", "harmonia", "figna", "deca"]


def test_arrays_share_technology_and_area():
    setting = Setting(node=7, voltage=0.7, frequency=1e9, bandwidth=1e12, area=0.2)
    for name in ("anda", "harmonia", "figna"):
        machine = shared_array(read_accelerator(name), setting)
        assert (machine.node, machine.frequency, machine.memory.bandwidth) == (7, 1e9, 1e12)
        assert 0.1 < area(machine)[ARRAY] <= 0.2
    assert shared_array(read_accelerator("anda"), Setting(area=0)).units == 256


def test_four_designs_on_prompt_and_next_token():
    tasks = [Task(MODEL, stage, tokens) for stage in ("prefill", "decode") for tokens in (256, 1024)]
    figures = compare(DESIGNS, tasks)
    assert len(figures) == 4 * (2 * 3 + 1) and {one.mapping for one in figures if one.design == "deca"} == {""}
    result = {(one.design, one.stage, one.tokens): one for one in figures if one.mapping != "pinned"}
    for design in DESIGNS:
        for stage in ("prefill", "decode"):
            short, long = result[design, stage, 256], result[design, stage, 1024]
            assert short.seconds < long.seconds and 0 < short.dram_joules < short.joules < long.joules
        assert result[design, "decode", 256].seconds < result[design, "prefill", 256].seconds
        assert bool(result[design, "decode", 256].partly) == (design == "deca")
    assert result["harmonia", "decode", 1024].dram_joules < result["anda", "decode", 1024].dram_joules


def test_a_slower_memory_slows_decoding_on_the_cpu():
    task = Task(MODEL, "decode", 1024)
    slow, fast = (compare(["deca"], [task], Setting(bandwidth=rate))[0].seconds for rate in (20e9, 850e9))
    assert slow > 5 * fast


def test_machines_take_the_formats_that_are_theirs():
    anda, harmonia, figna, plain = map(read_accelerator, ("anda", "harmonia", "figna", "fp-fp"))
    assert takes(anda, "bfp:g64:m6", "") and takes(anda, "anda:7,7,6,5", "") and not takes(anda, "bfp:g64:m6", "bfp4")
    assert takes(harmonia, "bfp:g32:m8", "bfp4") and not takes(harmonia, "bfp:g32:m8", "")
    assert takes(figna, "bfp:g64:m14", "") and not takes(figna, "bfp:g64:m8", "")
    assert takes(plain, "", "") and not takes(plain, "bfp:g64:m14", "")


def test_points_join_losses_with_costs():
    losses = [
        Measured("", "", "", (0.0, 0.0)),
        Measured("bfp:g64:m8", "", "", (0.001, 0.001)),
        Measured("bfp:g64:m5", "", "", (0.04, 0.04)),
        Measured("int8", "", "", (0.004, 0.004)),
        Measured("bfp:g32:m8", "bfp4", "online", (0.02, 0.02)),
    ]
    result = points(["fp-fp", "anda", "tender", "harmonia"], losses, Task(MODEL, tokens=256))
    assert [(one.machine, one.activations, one.kv) for one in result] == [
        ("fp-fp", "fp16", "fp16"),
        ("anda", "bfp:g64:m8", "fp16"),
        ("anda", "bfp:g64:m5", "fp16"),
        ("tender", "int8", "fp16"),
        ("harmonia", "bfp:g32:m8", "bfp4+online"),
    ]
    assert result[2].seconds < result[1].seconds and result[2].joules < result[1].joules
    (pinned,) = points(["anda"], losses[1:2], Task(MODEL, tokens=256), mapper=PINNED)
    assert pinned.joules > result[1].joules


def point(seconds, *excess, joules=1.0, mm2=1.0):
    return Point("any", "fp16", "fp16", excess, seconds, joules, mm2)


def test_the_front_holds_what_nothing_beats():
    good, fast, worse, twin = point(5, 0, 0), point(1, 0.02, 0.02), point(6, 0.02, 0.02), point(5, 0, 0)
    assert front([good, fast, worse, twin]) == [good, fast, twin]


def test_a_loss_and_its_paired_error():
    one = point(1, 0.01, 0.03)  # mean 0.02; standard deviation 0.02 / √2, over √2 windows: 0.01
    assert one.loss == pytest.approx(100 * (math.exp(0.02) - 1))
    assert one.loss_error == pytest.approx(100 * math.exp(0.02) * 0.01)


def test_losses_differ_only_beyond_two_paired_errors():
    rounded = point(2, 0.10, 0.50, 0.30)
    # Windows differ by far more than formats, and pairs tell all the same: differences 0.01, 0.01, 0.01.
    worse = point(1, 0.11, 0.51, 0.31)
    assert (loss_sign(rounded, worse), loss_sign(worse, rounded)) == (-1, 1)
    # Differences 0.00, 0.01, 0.02: mean 0.01, standard error 0.01 / √3 = 0.0058, twice that is more.
    unclear = point(1, 0.10, 0.51, 0.32)
    assert loss_sign(rounded, unclear) == loss_sign(unclear, rounded) == 0
    # Differences 0.01, 0.01, 0.02: mean 0.0133, standard error 0.0033.
    assert loss_sign(rounded, point(1, 0.11, 0.51, 0.32)) == -1


def test_a_slower_point_is_on_the_front_only_for_a_loss_beyond_noise():
    slow, quick, quick_but_worse = point(2, 0.10, 0.50, 0.30), point(1, 0.10, 0.51, 0.32), point(1, 0.11, 0.51, 0.31)
    assert front([slow, quick]) == [quick]
    assert front([slow, quick_but_worse]) == [slow, quick_but_worse]


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.01, 0.02, 0.05])] * 3, st.integers(1, 3)), min_size=1, max_size=8))
def test_no_front_is_empty_and_losses_are_compared_both_ways_alike(drawn):
    candidates = [point(seconds, *excess) for *excess, seconds in drawn]
    assert front(candidates)
    for one in candidates:
        for other in candidates:
            assert loss_sign(one, other) == -loss_sign(other, one)


def test_what_cannot_be_compared():
    with pytest.raises(MachineError, match="no accelerator 'decca'"):
        compare(["decca"], [])
    with pytest.raises(ValueError, match="bandwidth is above 0, not -1"):
        Setting(bandwidth=-1)
    with pytest.raises(ValueError, match="technologies are from 7 to 45 nm, not 90 nm"):
        compare(["anda"], [], Setting(node=90))
