"""What commands say of a busy machine: loads and bandwidths are given, nothing is timed."""

import os

import pytest

from tilepress import bench
from tilepress.bench import idle, linear
from tilepress.hardware import here, read_machine

ROOFSURFACE = ["roofsurface", "--machine", "here", "--decompressor", "none", "--weights", "bf8"]
LINEAR = ["bench", "linear", "int8:row+int8", "--predict", "--shape", "64x64", "--repeats", 1, "--no-peers"]


@pytest.fixture
def machine(monkeypatch):
    """With this load on two CPUs and these bandwidths, one after the other and again, in GB/s."""

    def set_up(load, *readings):
        given = iter(readings * 10)
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        monkeypatch.setattr(idle, "available_cpus", lambda: 2.0)
        monkeypatch.setattr(bench, "read_bandwidth", lambda threads: 1e9 * next(given))
        monkeypatch.setattr(linear, "_readings", lambda nbytes, times: (1e9 * readings[0], 1e9 * readings[1]))
        monkeypatch.setattr(here, "measure_frequency", lambda: 2.5e9)
        monkeypatch.setattr(here, "cores_are_shared", lambda threads: False)

    return set_up


@pytest.mark.parametrize("command", [ROOFSURFACE, LINEAR])
def test_an_idle_machine_is_not_warned_about(command, machine, call, call_for_records):
    machine(0.5, 30, 29)
    assert "busy" not in call(*command, "--strict").stderr
    assert call_for_records(*command)("busy") == "no"


@pytest.mark.parametrize("command", [ROOFSURFACE, LINEAR])
def test_a_busy_machine_is_warned_about_with_both_figures(command, machine, call, call_for_records):
    machine(0.5, 30, 20)
    done = call(*command)
    assert done.returncode == 0 and "busy: its read bandwidth changed by 33 %, more than 10 %" in done.stderr
    assert "30.0 GB/s and then 20.0, load average 0.5" in done.stderr
    figure = call_for_records(*command)
    assert figure("busy") == "its read bandwidth changed by 33 %, more than 10 %"
    assert [figure("bandwidth_reading", reading=one) for one in ("first", "second")] == [30, 20]
    assert figure("load_average", cpus=2) == 0.5


@pytest.mark.parametrize("command", [ROOFSURFACE, LINEAR, ["doctor"]])
def test_a_loaded_machine_is_refused_if_that_was_asked_for(command, machine, call):
    machine(7, 30, 30)
    assert "its load is above its 2 CPUs" in call(*command).stderr
    done = call(*command, "--strict")
    assert done.returncode == 1 and not done.stdout
    assert "this machine is busy" in done.stderr and "load average 7.0" in done.stderr
    assert "without --strict" in done.stderr


def test_a_written_machine_has_both_readings_and_the_larger_one(machine, call, tmp_path):
    machine(0.5, 10, 30, 20)  # of one thread, and twice of all
    file = tmp_path / "this.yaml"
    assert "warning: this machine is busy" in call("doctor", "--machine", file, "--threads", 2).stderr
    written = read_machine(file)
    assert written.memory.bandwidth == 30e9
    assert written.sources["memory"].startswith("measured, 2 threads; read bandwidth 30.0 GB/s and then 20.0")
    assert call("doctor", "--machine", tmp_path / "no.yaml", "--strict").returncode == 1
    assert not (tmp_path / "no.yaml").exists()


def test_strict_goes_with_predict(call):
    done = call("bench", "linear", "bf16", "--strict")
    assert done.returncode == 1 and "it goes with --predict" in done.stderr
