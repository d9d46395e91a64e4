"""Tile products per second on given CPUs, by the emulator where there is no matrix unit."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tilepress import _native

CPUS = sorted(os.sched_getaffinity(0))


def test_each_cpu_has_a_rate_and_the_caller_stays_where_it_was():
    rates = _native.tile_rates(CPUS, 0.001)
    assert len(rates) == len(CPUS) and all(rate > 0 for rate in rates)
    assert sorted(os.sched_getaffinity(0)) == CPUS


def test_each_thread_is_pinned_to_its_cpu():
    old, seen = set(os.listdir("/proc/self/task")), set()
    with ThreadPoolExecutor(1) as pool:
        measured = pool.submit(_native.tile_rates, CPUS, 0.2)
        while not measured.done():
            for thread in set(os.listdir("/proc/self/task")) - old:
                with suppress(ProcessLookupError):
                    seen.add(frozenset(os.sched_getaffinity(int(thread))))
        assert len(measured.result()) == len(CPUS)
    assert {frozenset([cpu]) for cpu in CPUS} <= seen


def test_cpus_that_are_not_there_are_refused():
    for cpu in (-1, 1023, 1024, 2**31 - 1):
        assert cpu not in CPUS
        with pytest.raises(ValueError, match=f"no thread of this process may run on CPU {cpu}"):
            _native.tile_rates([CPUS[0], cpu], 0.001)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1.01, float("nan"), float("inf")])
def test_times_out_of_range_are_refused(seconds):
    with pytest.raises(ValueError, match="a measurement takes more than no time, and one second at most"):
        _native.tile_rates(CPUS[:1], seconds)


@pytest.mark.parametrize("cpus", [[], [0] * 1025])
def test_numbers_of_cpus_out_of_range_are_refused(cpus):
    with pytest.raises(ValueError, match="1 to 1024 CPUs can be measured at once"):
        _native.tile_rates(cpus, 0.001)
