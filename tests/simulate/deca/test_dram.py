"""DRAM: the fast model equals the plain one, and cases worked out by hand."""

from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.hardware import MachineError, read_machine
from tilepress.simulate.deca.dram import Timing, initial, locate, serve
from tilepress.simulate.deca.dram_reference import Reference
from tilepress.simulate.deca.dram_streams import read_streams
from tilepress.simulate.deca.units import UNITS

# One channel with two groups of two banks. Closed row: activate, 10 later the read, 12 later its data, which take 4.
BASE = Timing(
    channels=1, bank_groups=2, banks=2, row=4, interleave=1, bursts=1, queue=8, refresh_sets=1, data=4, rcd=10, cl=12,
    rp=9, ras=20, rc=31, rtp=5, ccd_s=5, ccd_l=7, rrd_s=6, rrd_l=8, faw=26, rfc=50, refi=1000,
)  # fmt: skip
POWERS = {"channels", "bank_groups", "banks", "row", "interleave", "bursts", "refresh_sets"}


@dataclass(frozen=True)
class Case:
    """Requests (now, bank, row) at column 0 and when their lines arrive."""

    name: str
    requests: list[tuple[int, int, int]]
    arrive: list[int]
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def timing(self):
        return replace(BASE, **self.changes)

    @property
    def lines(self):
        return [line_at(self.timing, bank, row) for _, bank, row in self.requests]

    def served(self, timing):
        state, record = initial(timing), timing.record()
        return [serve(record, state, now, line) for (now, *_), line in zip(self.requests, self.lines, strict=True)]


def line_at(timing, bank, row):
    """In channel 0 of one or two; rows below the number of banks are XORed into the bank as they are."""
    lowest, others = (bank ^ row) % 2, (bank ^ row) // 2
    place = ((row * (timing.bank_groups * timing.banks // 2) + others) * timing.row) * 2 + lowest
    if timing.channels == 1:
        return place
    return place * 2 + bin(place).count("1") % 2


TWO_GROUPS = [(0, 0, 0), (0, 1, 0), (100, 0, 0), (100, 1, 0)]
CASES = [
    Case("a closed row: 10 + 12 + 4", [(0, 0, 0)], [26]),
    Case("a row hit, in its group: reads at 10 and 17", [(0, 0, 0), (0, 0, 0)], [26, 33]),
    Case("open rows of two groups: reads at 100 and 105", TWO_GROUPS, [26, 32, 116, 121]),
    Case("data for 9: reads at 100 and 109", TWO_GROUPS, [31, 40, 121, 130], {"data": 9}),
    Case("another group: activates at 0 and 6", [(0, 0, 0), (0, 1, 0)], [26, 32]),
    Case("another bank of the group: activates at 0 and 8", [(0, 0, 0), (0, 2, 0)], [26, 34]),
    Case("another row: activate to activate 31", [(0, 0, 0), (0, 0, 1)], [26, 57]),
    Case("another row: precharge at 20, activate at 29", [(0, 0, 0), (0, 0, 1)], [26, 55], {"rc": 20}),
    Case("another row after a read at 40: precharge at 45", [(0, 0, 0), (40, 0, 0), (40, 0, 1)], [26, 56, 80]),
    Case(
        "activates at 0, 6, 12, 18 and, four of them in 26, at 26",
        [(0, bank, 0) for bank in range(5)],
        [26, 32, 38, 44, 52],
        {"bank_groups": 4},
    ),
    Case(
        "without that at 24",
        [(0, bank, 0) for bank in range(5)],
        [26, 32, 38, 44, 50],
        {"bank_groups": 4, "faw": 20},
    ),
    Case(
        "the same when the fifth comes at 24",
        [(0, bank, 0) for bank in range(4)] + [(24, 4, 0)],
        [26, 32, 38, 44, 52],
        {"bank_groups": 4},
    ),
    Case(
        "the window's end, 481, is too late for refresh at 500",
        [(455, bank, 0) for bank in range(4)] + [(479, 4, 0)],
        [481, 487, 493, 499, 585],
        {"bank_groups": 4},
    ),
    Case(
        "activates at 103, 105, 118 and 121 wait for their banks; at 113, 8 after its group's, the last would be the "
        "fifth in 20, so it is activated at 123 and read at 136",
        [(42, 1, 0), (44, 0, 0), (57, 2, 0), (60, 3, 0), (95, 1, 1), (95, 0, 1), (95, 2, 1), (95, 3, 1), (100, 4, 0)],
        [68, 72, 83, 87, 129, 133, 144, 148, 152],
        {"bank_groups": 4, "rrd_s": 2, "faw": 20, "rp": 5, "rc": 61, "ccd_s": 4},
    ),
    Case(
        "five held: the last is read at 16, between reads at 10 and 24",
        [(0, 0, 0)] * 4 + [(0, 1, 0)],
        [26, 40, 54, 68, 32],
        {"ccd_l": 14, "queue": 5},
    ),
    Case(
        "four held: it comes at 26 when the first is done, is ready at 36 and read at 43, after the one at 38",
        [(0, 0, 0)] * 4 + [(0, 1, 0)],
        [26, 40, 54, 68, 59],
        {"ccd_l": 14, "queue": 4},
    ),
    Case("the last that precedes refresh at 500: activate at 480, 20 before", [(480, 0, 0)], [506]),
    Case("one too late for it: activate at 500 + 9 + 50", [(481, 0, 0)], [585]),
    Case("in refresh", [(505, 0, 0)], [585]),
    Case("the last read before refresh, 5 before", [(400, 0, 0), (495, 0, 0)], [426, 511]),
    Case("a read too late for it: its row is closed", [(400, 0, 0), (496, 0, 0)], [426, 585]),
    Case("a row that refresh has closed", [(0, 0, 0), (600, 0, 0)], [26, 626]),
    Case("refreshed again at 1500", [(1490, 0, 0)], [1585]),
    Case(
        "banks 0 and 1 at 250, 2 and 3 at 750",
        [(255, 1, 0), (255, 2, 0), (755, 3, 0)],
        [335, 281, 835],
        {"refresh_sets": 2},
    ),
    Case(
        "bank after bank: at 125, 375, 625 and 875",
        [(130, 0, 0), (130, 1, 0), (380, 1, 0), (630, 2, 0)],
        [210, 156, 460, 710],
        {"refresh_sets": 4},
    ),
    Case("two channels: at 250 and 750", [(255, 0, 0)], [335], {"channels": 2}),
    Case("two bursts: reads at 10 and 17", [(0, 0, 0)], [33], {"bursts": 2}),
    Case("a mesh that takes a line every 30", [(0, 0, 0), (0, 1, 0), (10, 0, 0)], [26, 56, 76], {"mesh": 30}),
    Case("a path of 100 on top", [(0, 0, 0)], [126], {"path": 100}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_worked_out_by_hand(case):
    assert case.served(case.timing) == case.arrive
    plain = Reference(case.timing)
    lines = zip(case.requests, case.lines, strict=True)
    assert [plain.serve(now, line) for (now, *_), line in lines] == case.arrive


# Two channels of runs of two lines, eight banks in four groups, rows of four lines. From the lowest bit: place in the
# run, which is the bank's lowest bit too; channel; two bits of column; two of the bank; row.
MAPPED = replace(BASE, channels=2, bank_groups=4, interleave=2)
PLACES = {
    0b0: (0, 0, 0),
    0b1: (0, 1, 0),
    0b10: (1, 0, 0),
    0b100: (1, 0, 0),  # column 1; the channel is XORed with every bit above
    0b1000: (1, 0, 0),  # column 2
    0b10000: (1, 2, 0),
    0b100000: (1, 4, 0),
    0b1000000: (1, 1, 1),  # row 1, and bank 0 XORed with it
    0b1000010: (0, 1, 1),
    0b1000000000: (1, 1, 8),  # row 8, folded to 1
    0b10000000000: (1, 2, 16),
}


@pytest.mark.parametrize("line, place", PLACES.items())
def test_where_a_line_lies(line, place):
    assert locate(MAPPED.record(), line) == place == Reference(MAPPED).locate(line)


@pytest.mark.parametrize(
    "channels, groups, banks, row, interleave", [(1, 1, 2, 1, 1), (2, 2, 2, 4, 2), (4, 4, 2, 2, 8)]
)
def test_every_place_holds_one_line(channels, groups, banks, row, interleave):
    timing = replace(BASE, channels=channels, bank_groups=groups, banks=banks, row=row, interleave=interleave)
    places = [locate(timing.record(), line) for line in range(4 * channels * groups * banks * row)]
    _, lines = np.unique(places, axis=0, return_counts=True)
    assert len(lines) == 4 * channels * groups * banks and (lines == row).all()


@pytest.mark.parametrize("more", [True, False], ids=["more", "less"])
@pytest.mark.parametrize("name", [one.name for one in fields(Timing)])
def test_no_parameter_changes_unnoticed(name, more):
    def changed(timing):
        value = getattr(timing, name)
        if name in POWERS:
            return replace(timing, **{name: value * 2 if more else max(value // 2, 1)})
        return replace(timing, **{name: value + 1 if more else max(value - 1, 0)})

    by_time = any(case.served(changed(case.timing)) != case.arrive for case in CASES)
    by_place = any(locate(changed(MAPPED).record(), line) != place for line, place in PLACES.items())
    assert by_time or by_place


@st.composite
def timings(draw):
    def at_most(high, low=1):
        return draw(st.integers(low, high))

    def power(high):
        return 1 << at_most(high, 0)

    groups, banks = power(3), power(2) * 2
    data, rcd, cl = at_most(9), at_most(30), at_most(30)
    ccd_s, faw, ras, rp, rtp, rfc = (
        at_most(cl + data),
        at_most(rcd + cl + data),
        at_most(60),
        at_most(30),
        at_most(20),
        at_most(99),
    )
    rrd_s = at_most(faw)
    return Timing(
        channels=power(2),
        bank_groups=groups,
        banks=banks,
        row=power(3),
        interleave=power(3),
        bursts=power(2),
        queue=at_most(10, 4),
        refresh_sets=draw(st.sampled_from([1, banks, groups * banks])),
        data=data,
        rcd=rcd,
        cl=cl,
        rp=rp,
        ras=ras,
        rc=ras + at_most(30, 0),
        rtp=rtp,
        ccd_s=ccd_s,
        ccd_l=at_most(cl + data, ccd_s),
        rrd_s=rrd_s,
        rrd_l=at_most(faw, rrd_s),
        faw=faw,
        rfc=rfc,
        refi=rfc + rp + ras + rcd + rtp + at_most(400),
        mesh=at_most(5, 0),
        path=at_most(5, 0),
    )


def requests(seed):
    """Time since the one before, and line: now in bursts and near each other, now not."""
    rng = np.random.default_rng(seed)
    longest, lines = rng.choice([1, 5, 60]), rng.choice([8, 64, 1 << 20])
    waits = rng.integers(0, longest + 1, 100) * (rng.random(100) < rng.random())
    return zip(waits.tolist(), rng.integers(0, lines, 100).tolist(), strict=True)


@settings(max_examples=100)
@given(timings(), st.integers(0, 1 << 32))
def test_equal_to_the_reference(timing, seed):
    plain, record, state, now = Reference(timing), timing.record(), initial(timing), 0
    for wait, line in requests(seed):
        now += wait
        assert serve(record, state, now, line) == plain.serve(now, line)
    for name in ("hits", "closed", "conflicts"):
        assert state[3][0][name] == sum(getattr(channel, name) for channel in plain.channels)


CLOCKS = {
    "spr-ddr": {
        "data": 8, "rcd": 39, "cl": 40, "rp": 39, "ras": 77, "rc": 115, "rtp": 18, "ccd_s": 8, "ccd_l": 12, "rrd_s": 8,
        "rrd_l": 12, "faw": 32, "rfc": 706, "refi": 9332,
    },
    "spr-hbm": {
        "data": 2, "rcd": 20, "cl": 28, "rp": 23, "ras": 45, "rc": 67, "rtp": 8, "ccd_s": 2, "ccd_l": 4, "rrd_s": 7,
        "rrd_l": 10, "faw": 26, "rfc": 154, "refi": 6222,
    },
}  # fmt: skip
COUNTS = {
    "spr-ddr": {"channels": 16, "row": 128, "bursts": 1, "refresh_sets": 1},
    "spr-hbm": {"channels": 64, "row": 16, "bursts": 2, "refresh_sets": 32},
}


@pytest.mark.parametrize("name", CLOCKS)
def test_machines_in_clocks(name):
    machine = read_machine(name)
    timing = Timing.of(machine)
    unit = machine.frequency * UNITS / (machine.memory.dram.rate / 2)  # of a clock
    assert {one: round(getattr(timing, one) / unit, 2) for one in CLOCKS[name]} == CLOCKS[name]
    assert {one: getattr(timing, one) for one in COUNTS[name]} == COUNTS[name]
    assert (timing.bank_groups, timing.banks, timing.interleave, timing.queue) == (8, 4, 4, 64)
    assert timing.mesh == round(64 / 850e9 * 2.5e9 * UNITS)
    assert timing.idle / UNITS / 2.5 == pytest.approx({"spr-ddr": 106.25, "spr-hbm": 131.25}[name], abs=0.01)  # ns


def test_a_machine_that_says_less():
    machine = read_machine("spr-ddr")
    assert Timing.of(read_machine("a100-80gb-pcie")) is None
    assert Timing.of(machine.changed(memory={"mesh_bandwidth": None})).mesh == 0
    with pytest.raises(MachineError, match=r"spr-ddr: lines of 32 bytes do not fit memory\.dram: .* 64 bytes"):
        Timing.of(machine.changed(caches={"line": 32}))
    with pytest.raises(MachineError, match=r"add memory\.dram and caches"):
        read_streams(read_machine("a100-80gb-pcie"), np.zeros((1, 1), np.int64))


def pages(count, page=64):
    """Lines of 56 cores, each reading pages that lie anywhere, one after another."""
    starts = np.random.default_rng(0).integers(0, 1 << 30, (56, count)) // page * page
    return (starts[:, :, None] + np.arange(page)).reshape(56, -1)


@pytest.mark.parametrize("name, low, high", [("spr-ddr", 0.80, 0.92), ("spr-hbm", 0.49, 0.52)])
def test_sequential_streams(name, low, high):
    """56 cores reach most of what DDR5's channels have; HBM2E's have more than the mesh."""
    machine = read_machine(name)
    found = read_streams(machine, pages(32))
    share = found.bandwidth / machine.memory.dram.bandwidth
    print(f"{name}: {found.bandwidth / 1e9:.0f} GB/s, {share:.1%}, of bursts {found.hits:.0%} row hits")
    assert low < share < high and found.hits > 0.4
    assert found.hits + found.closed + found.conflicts == pytest.approx(1)
    assert read_streams(machine, pages(2048, page=1)).bandwidth < found.bandwidth


def test_without_the_mesh_hbm_gives_more():
    machine = read_machine("spr-hbm")
    free = read_streams(machine.changed(memory={"mesh_bandwidth": None}), pages(32)).bandwidth
    many = machine.changed(memory={"mesh_bandwidth": None}, caches={"l2_misses": 400})
    print(f"no mesh: {free / 1e9:.0f} GB/s; and 400 misses: {read_streams(many, pages(32)).bandwidth / 1e9:.0f}")
    assert 850e9 < free < read_streams(many, pages(32)).bandwidth < machine.memory.dram.bandwidth


def test_one_bank_has_a_line_every_row_cycle():
    machine = read_machine("spr-ddr")
    timing = Timing.of(machine)
    rows = 1024 * np.arange(2000) * 128 * 16  # far apart
    lines = [line for line in rows if locate(timing.record(), line)[:2] == (0, 0)]
    found = read_streams(machine, np.array([lines]))
    cycle = (timing.ras + timing.rp) / UNITS / machine.frequency
    assert len(lines) > 3 and found.hits == 0 and found.bandwidth < 64 / cycle


def test_one_load_after_another_takes_the_idle_latency():
    machine = read_machine("spr-ddr").changed(caches={"l2_misses": 1})
    found = read_streams(machine, np.random.default_rng(0).integers(0, 1 << 30, (1, 4000)))
    assert 64 / found.bandwidth == pytest.approx(Timing.of(machine).idle / UNITS / machine.frequency, rel=0.25)
