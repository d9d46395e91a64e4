"""Each command as a user types it: its table, its records, its errors."""

import json
import os
import subprocess
import sys

import pytest
import torch

from tilepress import kernels, tiles
from tilepress.roofsurface.kernels import COUNTS

KEYS = {"name", "value", "unit", "origin", "machine", "command"}


def run(*arguments, **environment):
    """In a process of its own, as a user has it: seconds of imports, so for a few tests."""
    command = [sys.executable, "-W", "error", "-m", "tilepress", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def checked(done):
    """Name → value of the records that a command printed, and nothing else."""
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found and all(record.keys() == KEYS for record in found)
    assert all(
        record["origin"] in ("measured", "model") and record["command"].startswith("tilepress ") for record in found
    )
    return {record["name"]: record["value"] for record in found}


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
     "reproduce", "roofsurface", "simulate deca"],
)  # fmt: skip
def test_help(command, call):
    done = call(*command.split(), "--help")
    assert done.returncode == 0 and "Usage" in done.stdout
    assert command in ("", "bench") or "Example: tilepress" in done.stdout


def test_version_and_unknown_commands():
    assert run("--version").stdout.startswith("tilepress 0.")
    assert_refused(run("compresss"), "No such command")


def test_doctor(records, call):
    found = records("doctor")
    assert found["cpu.model"] and found["isa.active"] in found["isa.supported"].split()
    assert found["kernel.pack.chosen"] in found["kernel.pack.registered"].split()
    assert found["read_bandwidth.threads_1"] > 0.1
    assert f"read_bandwidth.threads_{found['threads']}" in found
    assert 0.3 < found["cpu.frequency"] < 8 and found["vector_rate"] > found["cpu.frequency"]
    assert "read_bandwidth.threads_1" in call("doctor").stdout


def test_doctor_obeys_and_refuses_a_forced_instruction_set():
    found = checked(run("doctor", "--json", TILEPRESS_ISA="portable"))
    chosen = {name: value for name, value in found.items() if name.endswith(".chosen")}
    for operation in (
        "linear_f32_bf16_any",
        "linear_f32_f16_any",
        "quantize_f16_fp",
    ):  # x86 has them, portable code does not
        assert chosen.pop(f"kernel.{operation}.chosen", "none") == "none"
    assert set(chosen.values()) == {"portable"}
    assert_refused(run("doctor", TILEPRESS_ISA="sse9"), "TILEPRESS_ISA=sse9", "those that work here: portable")


def test_formats(records, call):
    found = records("formats", "int4:g32", "bf16")
    assert found["int4:g32.bits_per_weight"] == 4.5
    assert found["int4:g32.compression_at_50%"] == pytest.approx(16 / (4 * 0.5 + 1 + 0.5))
    assert found["int4:g32.sqnr"] == pytest.approx(20.3, abs=0.1)
    assert "| `int4:g32` | 4.50 |" in call("formats", "int4:g32", "--markdown").stdout
    assert_refused(call("formats", "int44:g32"), "did you mean 'int4:g32'")


def test_formats_takes_a_table_file(tmp_path, records, call):
    (tmp_path / "t").write_text("-1, 0, 1")
    assert records("formats", f"lut2:{tmp_path}/t:g32")[f"lut2:{tmp_path}/t:g32.bits_per_weight"] == 2.5
    assert_refused(call("formats", f"lut2:{tmp_path}/missing"), "cannot read the table")


def test_inspect(tmp_path, records, call):
    path = tmp_path / "packed.safetensors"
    tiles.save(path, {"q": tiles.pack(torch.eye(32), "int4:g32", sparse=True)})
    found = records("inspect", path)
    assert found["q.format"] == "int4:g32" and found["q.density"] == 1 / 32
    printed = " ".join(call("inspect", path).stdout.split())  # a long path divides the title into lines
    assert "whole, 1 matrices" in printed
    path.write_bytes(path.read_bytes()[:-1])
    assert_refused(call("inspect", path), "is not a whole safetensors file")
    assert_refused(call("inspect", tmp_path / "nowhere"), "nowhere")


def test_bench_pack(records, call):
    found = records("bench", "pack", "int4:g32", "--neurons", 64, "--inputs", 64, "--repeats", 1)
    assert found["int4:g32.64x64.d0.5.pack"] > 0
    assert_refused(call("bench", "pack", "int4:g33"), "did you mean 'int4:g32'")
    assert_refused(call("bench", "pack", "--density", "2"), "density")


def test_bench_planes(records, call):
    found = records("bench", "planes", 4, 16, "--megabytes", 1, "--repeats", 1)
    assert found["planes.bfp:g64:m4.bits"] == pytest.approx(1 + 4 + 5 / 64, rel=1e-3)
    assert found["planes.bfp:g64:m16.pack"] > 0 and found["planes.bfp:g64:m16.unpack.share_of_read_bandwidth"] > 0
    assert_refused(call("bench", "planes", 17), "mantissas")


def test_bench_linear(records, call):
    small = ("--shape", "256x512", "--repeats", 2)
    found = records("bench", "linear", "int4:g32@50%+int8", "mxfp4", "--batch", 1, "--batch", 3, *small)
    assert found["int4:g32@50%+int8.256x512.b3.time"] > 0
    assert found["mxfp4.256x512.b1.kernel"].split("/")[1] in kernels.supported_isas()
    assert found["int4:g32@50%+int8.256x512.b1.over.torch float32"] > 0
    assert_refused(call("bench", "linear", "mxfp4+int8", *small), "integer weights")


def test_bench_linear_foretells(records):
    small = ("--shape", "256x512", "--repeats", 2)
    found = records("bench", "linear", "int8:row+int8", "--predict", *small)
    name = "int8:row+int8.256x512.b1"
    counted = [
        one.kernel for one in COUNTS if (one.weights, one.sparse, one.activations) == ("int8:row", False, "int8")
    ]
    assert (f"{name}.predicted_time" in found) == (found[f"{name}.kernel"] in counted)
    if f"{name}.predicted_time" in found:
        ratio = found[f"{name}.time"] / found[f"{name}.predicted_time"]
        assert found[f"{name}.over.prediction"] == pytest.approx(ratio)
        assert 0 < found[f"{name}.least_time"] < found[f"{name}.predicted_time"]
    done = run("bench", "linear", "int5:g32", "--sweep", "--predict", *small)
    assert "no prediction: the operations of none" in done.stdout


def test_bench_threads(records):
    found = records("bench", "threads", "--rounds", 1)
    assert set(found) == {"threads.torch", "threads.ours", "threads.alternating", "threads.over_sum"}


@pytest.mark.parametrize("command", [("doctor",), ("bench", "planes", "4"), ("bench", "linear", "int4:g32")])
def test_more_threads_than_a_process_can_have(call, command):
    done = call(*command, "--threads", "200000")
    assert done.returncode == 2
    assert "Invalid value for '--threads'" in done.stderr and "less than or equal to" in done.stderr
