import os

import pytest

from tilepress.bench import idle
from tilepress.bench.idle import Idleness, Load, available_cpus, load_now
from tilepress.bench.linear import _readings


@pytest.mark.parametrize(
    "average, readings, reasons",
    [
        (0.5, (100e9, 95e9), []),
        (2.0, (100e9, 90e9), []),  # as many threads as CPUs, and 10 % exactly
        (0.5, (100e9, 80e9), ["its read bandwidth changed by 20 %, more than 10 %"]),
        (0.5, (80e9, 100e9), ["its read bandwidth changed by 20 %, more than 10 %"]),
        (2.1, (100e9, 100e9), ["its load is above its 2 CPUs"]),
        (9.0, (1e9, 2e9), ["its read bandwidth changed by 50 %, more than 10 %", "its load is above its 2 CPUs"]),
    ],
)
def test_when_a_machine_is_busy(average, readings, reasons):
    idleness = Idleness(Load(average, 2), readings)
    assert idleness.reasons == reasons
    assert f"load average {average:.1f}" in idleness.text and f"{readings[0] / 1e9:.1f} GB/s" in idleness.text


def test_the_load_is_that_of_the_last_minute(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 2.0, 1.0))
    monkeypatch.setattr(idle, "available_cpus", lambda: 4.0)
    assert load_now() == Load(3.5, 4.0)


def test_the_load_of_others_leaves_this_process_out(monkeypatch, tmp_path):
    (tmp_path / "loadavg").write_text("9.00 5.00 3.00 4/321 777\n")
    monkeypatch.setattr(idle, "_RUNNING", tmp_path / "loadavg")
    assert idle.load_of_others(samples=2, pause=0).average == 3
    monkeypatch.setattr(idle, "_RUNNING", tmp_path / "none")
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 2.0, 1.0))
    assert idle.load_of_others().average == 3.5


@pytest.fixture
def groups(tmp_path):
    """Control groups with these files, and this process in the group of that name."""

    def write(own, **files):
        for name, text in files.items():
            path = tmp_path / "groups" / name.replace("__", "/").replace("cpu_", "cpu.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "own").write_text(own)
        return available_cpus(tmp_path / "groups", tmp_path / "own")

    return write


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def test_cpus_are_those_of_the_affinity_where_no_group_limits_them(groups, tmp_path):
    assert available_cpus(tmp_path, tmp_path / "none") == 8
    assert groups("0::/\n", cpu_max="max 100000\n") == 8
    assert groups("0::/\n", cpu_max="1600000 100000\n") == 8


def test_cpus_are_what_control_groups_give(groups):
    assert groups("0::/\n", cpu_max="150000 100000\n") == 1.5
    assert groups("0::/a/b\n", cpu_max="max 100000", a__cpu_max="400000 100000", a__b__cpu_max="600000 100000") == 4


def test_cpus_of_the_first_version_of_control_groups(groups):
    files = {"cpu,cpuacct__cpu_cfs_quota_us": "200000\n", "cpu,cpuacct__cpu_cfs_period_us": "100000\n"}
    assert groups("3:memory:/\n2:cpu,cpuacct:/\n", **files) == 2
    files["cpu,cpuacct__cpu_cfs_quota_us"] = "-1\n"
    assert groups("2:cpu,cpuacct:/\n", **files) == 8


def test_readings_are_of_the_first_and_the_second_half():
    assert _readings(12, [1.0, 1.0, 1.0, 2.0, 2.0, 3.0]) == (12, 6)
    assert _readings(12, [1.0, 4.0, 2.0]) == (12, 4)
    assert _readings(12, [2.0]) == (6, 6)
