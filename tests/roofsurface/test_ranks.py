"""Ranks on several sockets, by hand and at their limits."""

import pytest

from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.roofsurface import Cut, Libxsmm, Nothing, Step, check_ranks, one_process, predict, step

DDR, HBM, H100 = map(read_machine, ("spr-ddr", "spr-hbm", "h100-sxm"))
MXFP4, BF8 = map(parse_weight, ("mxfp4", "bf8"))
LINK = {"count": 4, "bandwidth": 50e9, "latency": 1e-6}
FOUR = DDR.changed(sockets=LINK)
WEIGHTS = 512 * 10**6
BLOCKS, HIDDEN, VOCABULARY = 10, 1000, 40_000


def cut(ranks):
    return Cut(ranks, WEIGHTS // ranks, BLOCKS, HIDDEN, VOCABULARY)


def run(machine, ranks, rows=1, format=BF8):
    return step(machine, predict(machine, format, 1.0, Libxsmm(), rows), cut(ranks), rows)


def test_a_step_by_hand():
    """512 bytes a tile of bf8 at 260 GB/s; 21 sums of 1000 floats and a rank's 10,000 logits from 3 others."""
    one = run(FOUR, 4)
    assert one.weights == pytest.approx(10**6 / 4 * 512 / 260e9)
    assert one.exchange == pytest.approx(22 * 3 * 1e-6 + 4 * (21 * 3 * 1000 + 3 * 10_000) / 50e9)
    assert one.rate == pytest.approx(1 / (one.weights + one.exchange))
    assert one.exchange_share == pytest.approx(one.exchange * one.rate)
    assert Step(8, 0.5, 1.5).rate == 4 and Step(8, 0.5, 1.5).exchange_share == 0.75


def test_one_rank_is_one_socket():
    one = run(DDR, 1)
    assert one.exchange == 0 == one.exchange_share
    assert one.rate * WEIGHTS == pytest.approx(predict(DDR, BF8, 1.0, Libxsmm()).flops)
    alone = DDR.model_copy(update={"sockets": None})
    assert run(alone, 1) == one and one_process(DDR, 1) == DDR and one_process(alone, 1) == alone


@pytest.mark.parametrize("format", [MXFP4, BF8])
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_ranks_behind_a_link_without_limits_divide_the_time(format, rows):
    """Whatever binds: mxfp4 on HBM waits for its vector units."""
    free = HBM.changed(sockets={"count": 4, "bandwidth": 1e30, "latency": 1e-30})
    for ranks in (2, 3, 4):
        assert run(free, ranks, rows, format).rate == pytest.approx(ranks * run(HBM, 1, rows, format).rate, rel=1e-6)


def test_a_slow_link_is_worse_than_one_rank():
    for change in ({"bandwidth": 1e6}, {"latency": 1e-3}):
        assert run(DDR.changed(sockets=change), 2).rate < run(DDR, 1).rate < run(DDR, 2).rate


def test_more_rows_are_more_bytes_over_the_link_and_no_more_waits():
    free = FOUR.changed(sockets={"latency": 1e-30})
    assert run(free, 4, 16).exchange == pytest.approx(16 * run(free, 4).exchange)
    wide = FOUR.changed(sockets={"bandwidth": 1e30})
    assert run(wide, 4, 16).exchange == pytest.approx(run(wide, 4).exchange)


def test_one_process_on_several_sockets():
    """It reads half of the weights, or three quarters, over the link: by whichever binds."""
    two, four = one_process(DDR, 2), one_process(FOUR, 4)
    assert two.cores == 112 and two.memory.bandwidth == pytest.approx(2 * 107.4e9 / 0.5)
    assert four.cores == 224 and four.memory.bandwidth == pytest.approx(4 * 50e9 / 0.75)
    wide = one_process(DDR.changed(sockets={"bandwidth": 131e9}), 2)
    assert wide.memory.bandwidth == 2 * 260e9 and wide.vector_rate == 2 * DDR.vector_rate
    gpus = one_process(H100.changed(sockets=LINK), 2)
    assert gpus.matrix_rate == 2 * H100.matrix_rate
    assert predict(gpus, BF8, 1.0, Nothing()).surface.limits["matrix"] == 2 * H100.matrix_rate


@pytest.mark.parametrize(
    "machine, ranks, message",
    [
        (DDR, 0, "there are 1 or more ranks, not 0"),
        (DDR, -1, "there are 1 or more ranks, not -1"),
        (DDR, 3, "3 ranks need as many sockets, and spr-ddr is described with 2"),
        (H100, 2, "2 ranks need as many sockets, and h100-sxm is described with 1"),
    ],
)
def test_ranks_without_a_socket(machine, ranks, message):
    for attempt in (check_ranks, one_process):
        with pytest.raises(ValueError, match=message):
            attempt(machine, ranks)
    with pytest.raises(ValueError, match=message):
        step(machine, predict(DDR, BF8, 1.0, Libxsmm()), Cut(ranks, 1, 1, 1, 1), 1)
