"""Matrix units counted, on machines that are made up: which CPUs share one, whatever the topology says."""

import random

import pytest

from tilepress import _native, kernels
from tilepress.bench import matrix_units
from tilepress.bench.matrix_units import PRODUCT, cpu_list, find_units, measure_units, parse_cpus, sibling_pairs

RATE = 180e6  # products per second: 5.9 TOP/s


class Machine:
    """CPU → unit. `clock`: of the rate alone, what is left where all CPUs multiply. `gain`: of two threads on one unit
    over one. `noise`: how often another program takes a CPU for half of a measurement. `foreign`: CPUs whose unit
    another guest uses all the time."""

    def __init__(self, units, *, clock=1.0, gain=1.0, noise=0.0, seed=0, foreign=()):
        self.units, self.clock, self.gain, self.noise, self.foreign = units, clock, gain, noise, foreign
        self.runs, self.tests, self.random = 0, [], random.Random(seed)

    def rates(self, cpus):
        self.runs += 1
        self.tests += [tuple(cpus)] if len(cpus) == 2 else []
        clock = 1 - (1 - self.clock) * (len(cpus) - 1) / max(len(self.units) - 1, 1)
        taken = {cpu: 0.5 if self.random.random() < self.noise else 1.0 for cpu in cpus}
        left = {cpu: 0.5 if cpu in self.foreign else 1.0 for cpu in cpus}
        return [RATE * clock * taken[cpu] * left[cpu] * self._share(cpu, cpus, taken) for cpu in cpus]

    def _share(self, cpu, cpus, taken):
        """A partner that is not there half of the time leaves the unit for that long."""
        partner = next((one for one in cpus if one != cpu and self.units[one] == self.units[cpu]), None)
        return 1.0 if partner is None else 1 - taken[partner] * (1 - self.gain / 2)

    def groups(self):
        return sorted(tuple(cpu for cpu in self.units if self.units[cpu] == unit) for unit in set(self.units.values()))

    def found(self, siblings=()):
        return find_units(list(self.units), self.rates, siblings)


def shuffled_pairs(count, seed):
    """CPU → unit, where no numbering helps."""
    cpus = list(range(count))
    random.Random(seed).shuffle(cpus)
    return dict(sorted((cpu, place // 2) for place, cpu in enumerate(cpus)))


LAYOUTS = {
    "neighbours": {cpu: cpu // 2 for cpu in range(16)},
    "halves": {cpu: cpu % 8 for cpu in range(16)},
    "hidden": shuffled_pairs(16, 0),
    "hidden, many": shuffled_pairs(96, 1),
    "one each": {cpu: cpu for cpu in range(16)},
    "odd, last alone": {cpu: cpu // 2 for cpu in range(7)},
    "one pair among others": {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 1},
    "numbers with gaps": {3: 0, 9: 1, 12: 0, 64: 1, 65: 2},
    "two": {0: 0, 1: 0},
    "one": {5: 0},
}


@pytest.mark.parametrize("units", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("clock", [1.0, 0.7])
@pytest.mark.parametrize("gain", [0.95, 1.15])
def test_cpus_that_share_a_unit_are_found_whatever_their_numbers(units, clock, gain):
    machine = Machine(units, clock=clock, gain=gain)
    found = machine.found()
    assert list(found.groups) == machine.groups()
    assert found.rate == RATE * PRODUCT and found.cpus == sorted(units)
    assert len({units[cpu] for cpu in found.one_cpu_each}) == len(found.one_cpu_each) == len(set(units.values()))


@pytest.mark.parametrize("name", ["neighbours", "halves", "hidden", "one each", "one pair among others"])
@pytest.mark.parametrize("seed", range(10))
def test_other_programs_that_take_cpus_change_nothing(name, seed):
    machine = Machine(LAYOUTS[name], gain=1.1, noise=0.05, seed=seed)
    assert list(machine.found().groups) == machine.groups()


@pytest.mark.parametrize("foreign", [{0}, {3, 7, 8}, set(range(15))])
def test_units_that_others_use_all_the_time_are_not_counted(foreign):
    with pytest.raises(ValueError, match=r"alone, CPUs multiply at 2\.9 to 5\.9 TOP/s: others use some of the units"):
        Machine(LAYOUTS["one each"], foreign=foreign).found()


def test_siblings_are_tried_first_and_only_believed_when_measured():
    true = Machine(LAYOUTS["halves"])
    assert list(true.found([(cpu, cpu + 8) for cpu in range(8)]).groups) == true.groups()
    assert set(true.tests) == {(cpu, cpu + 8) for cpu in range(8)}
    invented = Machine(LAYOUTS["one each"])
    assert list(invented.found([(cpu, cpu + 1) for cpu in range(0, 16, 2)]).groups) == invented.groups()
    misleading = Machine(LAYOUTS["halves"])
    assert list(misleading.found([(cpu, cpu + 1) for cpu in range(0, 16, 2)]).groups) == misleading.groups()


@pytest.mark.parametrize("count", [16, 64, 256])
def test_measurements_grow_like_the_number_of_cpus_times_its_logarithm(count):
    machine = Machine(shuffled_pairs(count, 2))
    assert list(machine.found().groups) == machine.groups()
    assert machine.runs <= count * (8 + count.bit_length())
    without = Machine({cpu: cpu for cpu in range(count)}, clock=0.7)
    without.found()
    assert without.runs <= 6 * count


def test_siblings_are_read_from_linux(tmp_path):
    for cpu, text in {0: "0,4", 1: "1-2", 2: "1-2", 4: "0,4", 5: "5", 6: "6,7"}.items():
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(f"{text}\n")
    assert sibling_pairs([0, 1, 2, 4, 5, 6, 8], tmp_path) == [(0, 4), (1, 2)]  # 7 may not be used, 8 has no file


@pytest.mark.parametrize(
    ("cpus", "text"), [([0], "0"), ([0, 1, 2, 3], "0-3"), ([0, 2, 3, 8], "0,2-3,8"), ([1, 3, 5], "1,3,5")]
)
def test_lists_of_cpus(cpus, text):
    assert cpu_list(cpus) == text and parse_cpus(f"{text}\n") == cpus


@pytest.fixture
def matrix_machine(monkeypatch):
    """As if this machine had matrix units: 16 CPUs, two of which share one."""
    machine = Machine(LAYOUTS["halves"])
    monkeypatch.setattr(_native, "tile_rates", lambda cpus, seconds: machine.rates(cpus), raising=False)
    monkeypatch.setattr(kernels, "chosen", lambda operation: "amx")
    monkeypatch.setattr(matrix_units, "available_cpus", lambda: 16.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(machine.units))
    return machine


def test_units_of_this_process(matrix_machine):
    units = measure_units()
    assert len(units.groups) == 8 and units.rate == pytest.approx(5.9e12, rel=0.01)
    assert cpu_list(units.one_cpu_each) == "0-7"


def test_there_are_none_without_matrix_units(matrix_machine, monkeypatch):
    monkeypatch.setattr(kernels, "chosen", lambda operation: "portable")
    assert measure_units() is None and matrix_machine.runs == 0


def test_a_process_with_less_time_than_cpus_counts_nothing(matrix_machine, monkeypatch):
    monkeypatch.setattr(matrix_units, "available_cpus", lambda: 8.0)
    with pytest.raises(ValueError, match="give this process the time of 8 CPUs, and it may run on 16"):
        measure_units()
    assert matrix_machine.runs == 0
