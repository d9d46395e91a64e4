"""Each command as a user types it: its table, its records, its errors."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from tests.figures import Figures

from tilepress import kernels, tiles
from tilepress.roofsurface.kernels import COUNTS

KEYS = {"metric", "labels", "value", "unit", "origin", "machine", "command", "version"}


def run(*arguments, **environment):
    """In a process of its own, as a user has it: seconds of imports, so for a few tests."""
    command = [sys.executable, "-W", "error", "-m", "tilepress", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def checked(done):
    """The figures of the records that a command printed, and nothing else."""
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert records and all(record.keys() == KEYS for record in records)
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for one in records for name in (one["metric"], *one["labels"]))
    assert all(
        record["origin"] in ("measured", "model") and record["command"].startswith("tilepress ") for record in records
    )
    return Figures(done.stdout)


@pytest.fixture
def records(call):
    return lambda *arguments, **environment: checked(call(*arguments, "--json", **environment))


def assert_refused(done, *messages):
    assert done.returncode != 0 and not done.stdout
    assert "Traceback" not in done.stderr
    for message in messages:
        assert message in done.stderr, done.stderr


@pytest.mark.parametrize(
    "command",
    ["", "demo", "doctor", "formats", "inspect", "bench", "bench pack", "bench planes", "bench linear", "bench model",
     "bench serve", "reproduce", "serve", "roofsurface", "simulate deca"],
)  # fmt: skip
def test_help(command, call):
    done = call(*command.split(), "--help")
    assert done.returncode == 0 and "Usage" in done.stdout
    assert command in ("", "bench") or "Example: tilepress" in done.stdout


def test_version_and_unknown_commands():
    assert run("--version").stdout.startswith("tilepress 0.")
    assert_refused(run("compresss"), "No such command")


def test_doctor(records, call):
    figure = records("doctor")
    assert figure("cpu_model") and figure("active_isa") in figure("supported_isas").split()
    assert (
        figure("chosen_kernel", operation="pack_tiles_codes")
        in figure("registered_kernels", operation="pack_tiles_codes").split()
    )
    assert figure("read_bandwidth", threads=1) > 0.1 and figure("version", package="tilepress")
    assert figure.has("read_bandwidth", threads=figure("threads"))
    assert 0.3 < figure("cpu_frequency") < 8 and figure("vector_rate") > figure("cpu_frequency")
    verdict = call("doctor").stdout.splitlines()
    assert verdict[0].startswith(f"{figure('active_isa')} kernels run with") and len(verdict) <= 12
    assert any(line.strip().startswith("memory is read at") for line in verdict)
    printed = call("doctor", "--all").stdout
    assert "read bandwidth, threads 1" in printed and "chosen kernel, pack_tiles_codes" in printed


def test_doctor_obeys_and_refuses_a_forced_instruction_set():
    records = checked(run("doctor", "--json", TILEPRESS_ISA="portable")).records
    chosen = {one.labels["operation"]: one.value for one in records if one.metric == "chosen_kernel"}
    for operation in ("linear_f32_bf16_any", "linear_f32_f16_any", "quantize_f16_fp"):
        assert chosen.pop(operation, "none") == "none"
    assert set(chosen.values()) == {"portable"}
    assert_refused(run("doctor", TILEPRESS_ISA="sse9"), "TILEPRESS_ISA=sse9", "those that work here: portable")


def test_formats(records, call):
    figure = records("formats", "int4:g32", "bf16")
    assert figure("bits_per_weight", format="int4:g32") == 4.5
    assert figure("compression", format="int4:g32", density=0.5) == pytest.approx(16 / (4 * 0.5 + 1 + 0.5))
    assert figure("sqnr", format="int4:g32") == pytest.approx(20.3, abs=0.1)
    assert "| `int4:g32` | 4.50 |" in call("formats", "int4:g32", "--markdown").stdout
    assert_refused(call("formats", "int44:g32"), "did you mean 'int4:g32'")


def test_formats_takes_a_table_file(tmp_path, records, call):
    (tmp_path / "t").write_text("-1, 0, 1")
    assert records("formats", f"lut2:{tmp_path}/t:g32")("bits_per_weight") == 2.5
    assert_refused(call("formats", f"lut2:{tmp_path}/missing"), "cannot read the table")


def test_inspect(tmp_path, records, call):
    path = tmp_path / "packed.safetensors"
    tiles.save(path, {"q": tiles.pack(torch.eye(32), "int4:g32", sparse=True)})
    figure = records("inspect", path)
    assert figure("format", matrix="q") == "int4:g32" and figure("density", matrix="q") == 1 / 32
    printed = " ".join(call("inspect", path).stdout.split())  # a long path divides the title into lines
    assert "whole, 1 matrices" in printed
    path.write_bytes(path.read_bytes()[:-1])
    assert_refused(call("inspect", path), "is not a whole safetensors file")
    assert_refused(call("inspect", tmp_path / "nowhere"), "nowhere")


def test_help_shows_the_name_of_an_extra(call):
    assert "tilepress[lm-eval]" in "".join(call("eval", "--help").stdout.replace("│", "").split())


def test_bench_pack(records, call):
    figure = records("bench", "pack", "int4:g32", "--neurons", 64, "--inputs", 64, "--repeats", 1)
    assert figure("pack_time", format="int4:g32", shape="64x64", density=0.5) > 0
    assert_refused(call("bench", "pack", "int4:g33"), "did you mean 'int4:g32'")
    assert_refused(call("bench", "pack", "--density", "2"), "density")


def test_bench_planes(records, call):
    figure = records("bench", "planes", 4, 16, "--megabytes", 1, "--repeats", 1)
    assert figure("bits_per_value", format="bfp:g64:m4") == pytest.approx(1 + 4 + 5 / 64, rel=1e-3)
    assert figure("pack_rate", format="bfp:g64:m16") > 0
    assert figure("unpack_share_of_read_bandwidth", format="bfp:g64:m16") > 0
    assert_refused(call("bench", "planes", 17), "mantissas")


def test_bench_linear(records, call):
    small = ("--shape", "256x512", "--repeats", 2)
    figure = records("bench", "linear", "int4:g32@50%+int8", "mxfp4", "--batch", 1, "--batch", 3, *small)
    int4 = {"format": "int4:g32", "density": 0.5, "activations": "int8", "shape": "256x512"}
    assert figure("time", **int4, batch=3) > 0
    assert figure("kernel", format="mxfp4", density=1, batch=1).split("/")[1] in kernels.supported_isas()
    assert figure("speedup", **int4, batch=1, peer="torch float32") > 0
    assert_refused(call("bench", "linear", "mxfp4+int8", *small), "integer weights")


def test_bench_linear_predicts(records, call):
    small = ("--shape", "256x512", "--repeats", 2)
    figure = records("bench", "linear", "int8:row+int8", "--predict", *small)
    layer = {"format": "int8:row", "activations": "int8", "shape": "256x512", "batch": 1}
    counted = [
        one.kernel for one in COUNTS if (one.weights, one.sparse, one.activations) == ("int8:row", False, "int8")
    ]
    assert figure.has("predicted_time", **layer) == (figure("kernel", **layer) in counted)
    if figure.has("predicted_time"):
        ratio = figure("time", **layer) / figure("predicted_time", **layer)
        assert figure("time_over_prediction", **layer) == pytest.approx(ratio)
        assert 0 < figure("least_time", **layer) < figure("predicted_time", **layer)
    done = call("bench", "linear", "int5:g32", "--sweep", "--predict", *small)
    assert "no prediction: the operations of none" in done.stdout


def test_bench_threads(records):
    figure = records("bench", "threads", "--rounds", 1)
    alone, both = figure("time", loop="torch") + figure("time", loop="ours"), figure("time", loop="alternating")
    assert figure("slowdown") == pytest.approx(both / alone)


@pytest.mark.parametrize("command", [("doctor",), ("bench", "planes", "4"), ("bench", "linear", "int4:g32")])
def test_more_threads_than_a_process_can_have(call, command):
    done = call(*command, "--threads", "200000")
    assert done.returncode == 2
    assert "Invalid value for '--threads'" in done.stderr and "less than or equal to" in done.stderr
