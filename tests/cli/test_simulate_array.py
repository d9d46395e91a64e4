import json

import pytest

SMALL = ("--model", "smollm2-135m", "--tokens", 128)


def test_array(call, call_for_records):
    found = call_for_records("simulate", "array", "harmonia", *SMALL, "--each")
    name = "harmonia.SmolLM2-135M.prefill_128.batch_1"
    assert found[f"{name}.time"] > 0 and found[f"{name}.area"] == pytest.approx(3.86, abs=0.05)
    parts = [value for key, value in found.items() if key.startswith(f"{name}.energy.")]
    assert sum(parts) == pytest.approx(found[f"{name}.energy"])
    assert "harmonia, " in found[f"{name}.q 128x576x576.bound"]
    done = call("simulate", "array", "anda", *SMALL, "--stage", "decode", "--acts", "anda:7,7,6,5")
    assert done.returncode == 0 and "utilisation" in done.stdout


def test_mantissas_and_orders_change_time_and_traffic(call_for_records):
    def figure(what, *arguments):
        found = call_for_records("simulate", "array", *arguments, *SMALL, "--scope", "linear")
        return next(value for name, value in found.items() if name.endswith(what))

    assert figure(".time", "anda", "--acts", "bfp:g64:m4") < figure(".time", "anda", "--acts", "bfp:g64:m8")
    rows, columns = (figure(".dram", "harmonia", "--order", order) for order in ("row-major", "column-major"))
    assert rows != columns


def test_lists(call, call_for_records):
    assert call_for_records("simulate", "array", "--fitted")["arrays.fitted.logic_energy"] == 1.9
    assert "fitted to" in call("simulate", "array", "--fitted").stdout
    assert "figna-m11" in call("simulate", "array", "--list").stdout
    assert "tender.title" in call_for_records("simulate", "array", "--list")


def test_compare_with_a_front(call, call_for_records, tmp_path):
    command = "tilepress eval smollm2-135m --data wikitext2"
    losses = {"": 15.0, " --acts bfp:g64:m8": 15.1, " --acts bfp:g64:m4": 20.0, " --acts bfp:g32:m8 --kv bfp4": 15.6}
    known = {"name": "m.perplexity", "unit": "", "origin": "measured", "machine": "here"}
    records = [{**known, "value": value, "command": command + more} for more, value in losses.items()]
    path = tmp_path / "quality.json"
    path.write_text(json.dumps(records))
    options = ("--model", "smollm2-135m", "--tokens", "128,256", "--quality", path)
    found = call_for_records("simulate", "compare", *options)
    assert found["deca.SmolLM2-135M.decode_256.time"] > 0 and found["figna.SmolLM2-135M.prefill_128.energy"] > 0
    assert found["anda.bfp:g64:m4.kv_fp16.loss"] == pytest.approx(100 / 3)
    assert found["harmonia.bfp:g32:m8.kv_bfp4.on_front"] is True
    page = tmp_path / "designs.html"
    shown = call("simulate", "compare", "anda", "harmonia", *options, "--page", page).stdout
    assert "on the front" in shown and "prefill, 256 tokens" in shown
    assert "filled: on the front" in page.read_text() and "decode: energy" in page.read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["array", "andy"], "no accelerator 'andy'; did you mean 'anda'?"),
        (["array", "anda", "--model", "gpt-2"], "no model 'gpt-2'"),
        (["array", "anda", "--tokens", "0"], "at least one token and one sequence, not 0 and 1"),
        (["array", "anda", "--batch", "-2"], "at least one token and one sequence, not 2048 and -2"),
        (["array", "anda", "--kv", "bfp4"], "anda attends with FP16 and cannot multiply"),
        (["array", "harmonia", "--acts", "bfp:g32:m9"], "harmonia cannot multiply bfp m9 × int4"),
        (["compare", "--tokens", "2K"], "--tokens wants lengths with commas between"),
        (["compare", "--area", "-1"], "area is above 0, not -1"),
        (["compare", "--area", "1e-9"], "no unit of anda"),
        (["compare", "--quality", "none.json"], "holds no records of `tilepress eval`"),
    ],
)
def test_errors(call, arguments, message):
    done = call("simulate", *arguments)
    assert done.returncode == 1 and message in done.stderr


def test_a_buffer_too_small(call, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text("like: anda\nname: tiny\nbuffers: {activations: 1024, weights: 1024}\nsources: {buffers: mine}\n")
    done = call("simulate", "array", path)
    assert done.returncode == 1 and "is larger than its buffer of 1024 bytes" in done.stderr


@pytest.mark.parametrize(
    ("machine", "acts", "instead"),
    [
        ("anda", "bfp:g32:m8", "anda computes in groups of 64, so bfp:g32:m8 is simulated as bfp:g64:m8"),
        ("harmonia", "anda:g64:8,8,8,8", "harmonia computes in groups of 32"),
        ("harmonia", "bfp:g32:m8", None),
        ("harmonia", "anda:8,8,8,8", None),
        ("figna", "bfp:g32:m8", None),
    ],
)
def test_a_group_of_another_size_than_the_machine_s_is_said(call, machine, acts, instead):
    done = call("simulate", "array", machine, "--acts", acts, *SMALL)
    assert done.returncode == 0 and (instead in done.stderr if instead else "note" not in done.stderr)


def test_compare_says_it_for_each_machine(call):
    done = call("simulate", "compare", "anda", "harmonia", "--acts", "bfp:g64:m8", *SMALL)
    assert done.stderr.count("note: harmonia computes in groups of 32") == 1 and "note: anda" not in done.stderr
