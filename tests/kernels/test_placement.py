"""The placement of threads that `doctor --tune` has stored: checked, asked for, and never where the user has chosen."""

import json
import os
import threading

import pytest
import torch

from tilepress import kernels
from tilepress.kernels import placement, tuning
from tilepress.kernels.placement import Placement, save, stored, threads_on, use_stored

OWN = sorted(os.sched_getaffinity(0))
HALF = OWN[: (len(OWN) + 1) // 2]
BETTER = Placement(HALF, 1.2, 1.0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, an environment without choices, and threads as they were at the end."""
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path))
    for name in ("TILEPRESS_TUNING", *placement.CHOICES):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(len(OWN))
    with threads_on(OWN):
        yield tmp_path
    torch.set_num_threads(before)


def where_threads_are():
    return {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}


@pytest.mark.parametrize(
    ("many", "few", "better"),
    [(1.2, 1.0, True), (1.0, 1.05, True), (1.04, 1.04, False), (1.5, 0.97, False), (0.9, 2.0, False), (1, 1, False)],
)
def test_it_is_better_where_one_gains_and_none_loses(many, few, better):
    assert Placement([0], many, few).is_better is better


def test_what_is_saved_is_read_again(cache):
    assert stored() is None
    path = save(Placement(HALF, 1.25, 0.5))
    assert path == placement.placement_file() and path.parent == cache / "tuning"
    assert stored() == Placement(HALF, 1.25, 0.5)
    assert tuning.reset() == [path] and stored() is None


def test_the_variable_turns_it_off(cache, monkeypatch):
    save(BETTER)
    monkeypatch.setenv("TILEPRESS_TUNING", "off")
    assert stored() is None and not use_stored()


def test_that_of_other_cpus_or_instructions_is_not_taken(cache):
    save(BETTER)
    with kernels.forced_isa("portable"):
        assert (stored() is None) == (len(kernels.supported_isas()) > 1)
    if len(HALF) < len(OWN):
        with threads_on(HALF):
            assert stored() is None


def test_threads_move_as_stored(cache):
    save(BETTER)
    assert use_stored()
    assert where_threads_are() == {frozenset(HALF)} and torch.get_num_threads() == len(HALF)


@pytest.mark.parametrize("speedups", [(1.5, 0.9), (1.0, 1.0)])
def test_threads_stay_where_it_is_worth_nothing(cache, speedups):
    save(Placement(HALF, *speedups))
    assert not use_stored() and where_threads_are() == {frozenset(OWN)}


@pytest.mark.parametrize("name", placement.CHOICES)
def test_threads_stay_where_the_environment_says_how_many_or_where(cache, monkeypatch, name):
    save(BETTER)
    monkeypatch.setenv(name, "2")
    assert not use_stored() and where_threads_are() == {frozenset(OWN)}


def test_threads_stay_where_the_program_has_set_their_number(cache):
    save(BETTER)
    torch.set_num_threads(len(OWN) + 1)
    assert not use_stored() and torch.get_num_threads() == len(OWN) + 1
    assert where_threads_are() == {frozenset(OWN)}


def test_all_threads_move_and_come_back(cache):
    inside, end = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (inside.set(), end.wait()))
    other.start()
    inside.wait()
    with threads_on(HALF[:1]):
        assert where_threads_are() == {frozenset(HALF[:1])}
        late = threading.Thread(target=end.wait)
        late.start()
    assert where_threads_are() == {frozenset(OWN)}
    end.set()
    other.join()
    late.join()


@pytest.mark.parametrize(
    ("content", "changes", "reason"),
    [
        ("", {}, "Expecting value"),
        ("[]", {}, "it is no placement of threads"),
        ("[" * 100_000, {}, "recursion"),
        (None, {"more": 1}, "it is no placement of threads"),
        (None, {"cpu": "80486"}, "it is of another machine or version"),
        (None, {"cpus": [999]}, "it is of another machine or version"),
        (None, {"one_per_unit": []}, r"\[\] is no list of CPUs"),
        (None, {"one_per_unit": "0-7"}, "0-7 is no list of CPUs"),
        (None, {"one_per_unit": [True]}, r"\[True\] is no list of CPUs"),
        (None, {"one_per_unit": [OWN[0], OWN[0]]}, "are not CPUs of this process"),
        (None, {"one_per_unit": [-1]}, "are not CPUs of this process"),
        (None, {"many_rows": "fast"}, "fast is no speedup"),
        (None, {"few_rows": float("nan")}, "nan is no speedup"),
        (None, {"few_rows": 0.0}, "0.0 is no speedup"),
        (" " * (1 << 20) + "{}", {}, "it is larger than 1 MB"),
    ],
)
def test_damaged_files_are_ignored_with_a_warning_that_says_what_to_do(cache, content, changes, reason):
    path = save(BETTER)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) if content is None else content)
    with pytest.warns(RuntimeWarning, match=f"threads run on every CPU .*{reason}.*--reset-tuning"):
        assert not use_stored()
    assert where_threads_are() == {frozenset(OWN)}


def test_a_thread_that_ends_meanwhile_is_left_out(monkeypatch):
    """Between the list of threads and a look at where each may run."""
    ended = max(placement._threads()) + 10_000_000  # more than a number of a thread can be
    monkeypatch.setattr(placement, "_threads", lambda: [ended, os.getpid()])
    with placement.threads_on(OWN):
        assert sorted(os.sched_getaffinity(0)) == OWN
