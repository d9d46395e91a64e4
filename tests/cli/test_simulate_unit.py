import numpy as np
import pytest
import torch

from tilepress.tiles import pack, save

UNITS = [
    ("anda-apu", {"mantissa": 8, "sums": "fp32"}, 16 * 9 + 3),
    ("anda-compressor", {"mantissa": 8}, 9),
    ("harmonia-pe", {"mode": "m8w4", "sums": "fp32"}, 16 + 4 + 2),
    ("harmonia-converter", {"path": "channels", "mantissa": 8}, 32 * 17),
    ("harmonia-offsets", {"top": 4}, 4 * 256 + 256),
    ("figna", {"mantissa": 14}, 1026),
    ("int-mac", {}, 1025),
    ("m-ant-mac", {}, 66),
    ("int8-quantiser", {"scale": "offline"}, 1024),
    ("deca-pe", {"format": "mxfp4", "density": 1, "engine": "deca:w32:l8", "tiles": 8}, 4 * 35 + 16),
]


@pytest.mark.parametrize("unit, labels, cycles", UNITS)
def test_units(call_for_records, unit, labels, cycles):
    figure = call_for_records("simulate", "unit", unit)
    assert figure("equal", unit=unit, **labels) is True
    assert figure("cycles", unit=unit) == figure("formula_cycles", unit=unit) == cycles
    assert any(count > 0 for count in figure.all("events", unit=unit))


@pytest.mark.parametrize("mode, cycles", [("m8m4", 16 + 4 + 2), ("m8m8", 32 + 4 + 2)])
def test_modes(call_for_records, mode, cycles):
    figure = call_for_records("simulate", "unit", "harmonia-pe", "--mode", mode)
    assert figure("equal", mode=mode, sums="fp32") is True and figure("cycles", mode=mode) == cycles


def test_online_scales(call_for_records, tmp_path):
    figure = call_for_records("simulate", "unit", "int8-quantiser", "--scale", "online", "--groups", 3)
    assert figure("equal", scale="online") is True and figure("cycles") == figure("formula_cycles") == 64 * 4 + 24
    np.save(tmp_path / "x.npy", np.linspace(-3, 3, 9 * 70, dtype=np.float32).reshape(9, 70))
    given = call_for_records("simulate", "unit", "int8-quantiser", "--scale", "online", "--data", tmp_path / "x.npy")
    assert given("equal") is True and given("cycles") == 64 * (2 * 2 + 1) + 24


def test_decas_element(call_for_records):
    arguments = ["--weights", "bf8", "--density", 0.5, "--tiles", 3, "--latency", 5]
    figure = call_for_records("simulate", "unit", "deca-pe", *arguments)
    again = call_for_records("simulate", "unit", "deca-pe", *arguments, "--squash-at", 20, "--squash-at", 30)
    for one in (figure, again):
        assert one("equal") is True and one("cycles") == one("formula_cycles")
    assert again("cycles") == 30 + figure("cycles") and again("events", event="requests") > figure(
        "events", event="requests"
    )
    assert figure("waiting", cause="bubbles") > 0 and figure("waiting", cause="starved") > 0
    kept = figure("events", event="lookups")
    assert kept == figure("events", event="crossbar_moves") and 600 < kept < 900
    larger = call_for_records("simulate", "unit", "deca-pe", *arguments, "--engine", "deca:w64:l64")
    assert larger("waiting", cause="bubbles") == 0 and larger("cycles") < figure("cycles")


def test_given_weights(call_for_records, tmp_path):
    values = np.random.default_rng(0).standard_normal((40, 70)).astype(np.float32)
    np.save(tmp_path / "w.npy", values)
    figure = call_for_records("simulate", "unit", "deca-pe", "--data", tmp_path / "w.npy", "--tiles", 99)
    assert figure("equal", tiles=9) is True
    matrices = {"a": pack(torch.ones(16, 32), "bf8"), "b": pack(torch.from_numpy(values), "int4:g32", sparse=True)}
    save(tmp_path / "m.safetensors", matrices)
    of_file = ["simulate", "unit", "deca-pe", "--packed", tmp_path / "m.safetensors"]
    assert call_for_records(*of_file)("equal", format="bf8", tiles=1) is True
    assert call_for_records(*of_file, "--layer", "b")("equal", format="int4:g32", tiles=8) is True


def test_where_nothing_need_be_equal(call_for_records):
    for arguments in (
        ["fp-fp"],
        ["fp-int"],
        ["fp16-mac"],
        ["fp16-mac", "--weight-format", "int4"],
        ["anda-apu", "--sums", "fp16"],
    ):
        figure = call_for_records("simulate", "unit", *arguments)
        assert not figure.has("equal") and figure.has("total")
    assert not call_for_records("simulate", "unit", "deca-pe", "--weights", "nf4:g64").has("equal")


def test_given_data_and_words(call, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.linspace(-3, 3, 40 * 33, dtype=np.float32).reshape(40, 33))
    for arguments in (["anda-compressor"], ["harmonia-converter", "--path", "tokens"]):
        done = call("simulate", "unit", *arguments, "--data", path, "--mantissa", 4)
        assert done.returncode == 0 and "every bit is that of formats" in done.stdout
        assert f"{arguments[0]}, " in done.stdout and "mantissa 4" in done.stdout
    np.save(path, np.ones((2, 70)))
    assert "70.0" in call("simulate", "unit", "harmonia-pe", "--mode", "m8m8", "--data", path).stdout


def test_a_wrong_bit_is_a_failure(call, monkeypatch):
    monkeypatch.setattr("tilepress.kernels.attention_reference.SMOOTHED", 1)
    done = call("simulate", "unit", "harmonia-offsets")
    assert done.returncode == 1 and "DIFFERS from kernels" in done.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["anda-apu", "--mantissa", 17], "mantissa must be an int from 1 to 16, got 17"),
        (["anda-apu", "--groups", 33], "at most 2048 inputs, which kernels sum at a time, not 2112"),
        (["harmonia-converter", "--mantissa", 9], "magnitudes of 1 to 8 bits, not 9"),
        (["anda-apu", "--data", "absent.npy"], "No such file"),
        (["anda-apu", "--mode", "m8m8"], "anda-apu has no --mode: that is for harmonia-pe"),
        (["anda-apu", "--squash-at", 3], "anda-apu has no --squash-at: that is for deca-pe"),
        (["deca-pe", "--groups", 3], "deca-pe has no --groups: that is for anda-apu"),
        (["m-ant-mac", "--groups", 1], "m-ant-mac has no --groups: that is for anda-apu"),
        (["int-mac", "--scale", "online"], "int-mac has no --scale: that is for int8-quantiser"),
        (["fp-int", "--weight-format", "int4"], "fp-int has no --weight-format: that is for fp16-mac"),
        (["deca-pe", "--weights", "fp16"], "codes of up to 8 bits, or bf16, not fp16"),
        (["deca-pe", "--weights", "int9"], "int9"),
        (["deca-pe", "--density", 0], "a density is above 0 and at most 1, not 0"),
        (["deca-pe", "--engine", "libxsmm"], "'libxsmm' is no engine; take deca or deca:w32:l8, say"),
        (["deca-pe", "--packed", "absent.safetensors"], "No such file"),
        (["deca-pe", "--layer", "a"], "--layer names a matrix of a packed file: give --packed too"),
        (["deca-pe", "--packed", "a.safetensors", "--weights", "bf8"], "a packed file has its own weights"),
    ],
)
def test_errors(call, arguments, message):
    done = call("simulate", "unit", *arguments)
    assert done.returncode == 1 and message in done.stderr and not done.stdout


def test_shapes_that_units_do_not_take(call, tmp_path):
    np.save(tmp_path / "x.npy", np.ones(65, np.float32))
    for unit, message in (
        ("m-ant-mac", "the unit takes one group, at most 64 values, not 65: give less data"),
        ("int8-quantiser", "takes FP16 values [tokens, channels], not [65]"),
    ):
        done = call("simulate", "unit", unit, "--data", tmp_path / "x.npy")
        assert done.returncode == 1 and message in done.stderr


def test_files_that_are_not_data(call, tmp_path):
    path = tmp_path / "x.npy"
    for content, message in [
        (np.array([1e6, 2.0]), "values that FP16 does not hold"),
        (np.array(["a"]), "has no numbers"),
        (np.ones((2, 3)), r"one row of data, [inputs], not [2, 3]"),
    ]:
        np.save(path, content)
        done = call("simulate", "unit", "anda-apu", "--data", path)
        assert done.returncode == 1 and message in done.stderr
    np.save(path, np.ones(5))
    done = call("simulate", "unit", "deca-pe", "--data", path)
    assert done.returncode == 1 and "takes weights [neurons, inputs], not [5]" in done.stderr
    path.write_bytes(b"not an array")
    assert "is no .npy file of numbers" in call("simulate", "unit", "anda-apu", "--data", path).stderr
