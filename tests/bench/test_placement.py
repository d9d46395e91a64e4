"""Placements of threads, timed in turns."""

import os
from itertools import pairwise

import pytest
import torch

from tilepress import kernels
from tilepress.bench import placement as measuring
from tilepress.bench.placement import PlacementRun, measure_placement

OWN = sorted(os.sched_getaffinity(0))
SMALL = PlacementRun(size=64, many_rows=32, turns=3, seconds=0.0)


def test_a_placement_is_measured_and_threads_come_back():
    before = torch.get_num_threads()
    placement = measure_placement(OWN[:1], SMALL)
    assert placement.cpus == OWN[:1] and placement.many_rows > 0 and placement.few_rows > 0
    assert torch.get_num_threads() == before and sorted(os.sched_getaffinity(0)) == OWN


@pytest.mark.skipif(len(OWN) < 2, reason="one CPU has one placement")
def test_calls_run_where_and_with_as_many_threads_as_is_said(monkeypatch):
    seen = []

    def linear(x, packed, *, activations):
        place = tuple(sorted(os.sched_getaffinity(0)))
        seen.append((x.shape[0], activations, place, torch.get_num_threads()))

    monkeypatch.setattr(kernels, "linear", linear)
    measure_placement(OWN[:1], SMALL)
    expected = {(rows, "int8", tuple(cpus), len(cpus)) for rows in (32, 1) for cpus in (OWN, OWN[:1])}
    assert set(seen) == expected
    places = [place for _, _, place, _ in seen]
    assert sum(a != b for a, b in pairwise(places)) == 2 * SMALL.turns - 1


@pytest.mark.skipif(len(OWN) < 2, reason="one CPU has one placement")
def test_speedups_are_of_medians(monkeypatch):
    """Of many rows with every CPU 4, 2, 3 s and with one per unit 2, 9, 1; of few 1 s and 2."""
    times = iter([4.0, 1.0, 2.0, 2.0, 2.0, 1.0, 9.0, 2.0, 3.0, 1.0, 1.0, 2.0])
    monkeypatch.setattr(measuring, "race", lambda calls, pools, repeats, seconds: [next(times)])
    placement = measure_placement(OWN[:1], SMALL)
    assert placement.many_rows == 3 / 2 and placement.few_rows == 1 / 2
