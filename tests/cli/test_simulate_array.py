import pytest

from tilepress.records import Record, to_json

SMALL = ("--model", "smollm2-135m", "--tokens", 128)


def test_array(call, call_for_records):
    figure = call_for_records("simulate", "array", "harmonia", *SMALL, "--each")
    run = {"design": "harmonia", "model": "SmolLM2-135M", "stage": "prefill", "tokens": 128, "batch": 1}
    assert figure("time", **run) > 0 and figure("area", **run) == pytest.approx(3.86, abs=0.05)
    parts = [one.value for one in figure.records if one.metric == "energy" and "part" in one.labels]
    assert len(parts) > 1 and sum(parts) == pytest.approx(figure("energy"))
    assert "harmonia, " in figure("bound", product="q 128x576x576")
    done = call("simulate", "array", "anda", *SMALL, "--stage", "decode", "--acts", "anda:7,7,6,5")
    assert done.returncode == 0 and "utilisation" in done.stdout


def test_mantissas_and_orders_change_time_and_traffic(call_for_records):
    def figure(metric, *arguments):
        return call_for_records("simulate", "array", *arguments, *SMALL, "--scope", "linear")(metric)

    assert figure("time", "anda", "--acts", "bfp:g64:m4") < figure("time", "anda", "--acts", "bfp:g64:m8")
    rows, columns = (figure("dram", "harmonia", "--order", order) for order in ("row-major", "column-major"))
    assert rows != columns


def test_lists(call, call_for_records):
    figure = call_for_records("simulate", "array", "--fitted")
    assert figure("fitted_parameter", simulator="arrays", parameter="logic_energy") == 1.9
    assert "fitted to" in call("simulate", "array", "--fitted").stdout
    assert "figna-m11" in call("simulate", "array", "--list").stdout
    assert call_for_records("simulate", "array", "--list").has("title", design="tender")


def test_compare_with_a_front(call, call_for_records, tmp_path):
    rounded = [({}, 15.0), ({"activations": "bfp:g64:m8"}, 15.1), ({"activations": "bfp:g64:m4"}, 20.0)]
    rounded.append(({"activations": "bfp:g32:m8", "kv": "bfp4"}, 15.6))
    rounded.append(({"statistic": "standard_error"}, 0.5))
    known = {"model": "smollm2-135m", "text": "wikitext2"}
    records = [
        Record("perplexity", known | formats, value, "", "measured", "here", "tilepress eval smollm2-135m")
        for formats, value in rounded
    ]
    path = tmp_path / "quality.json"
    path.write_text(to_json(records))
    options = ("--model", "smollm2-135m", "--tokens", "128,256", "--quality", path)
    figure = call_for_records("simulate", "compare", *options)
    assert figure("time", design="deca", model="SmolLM2-135M", stage="decode", tokens=256) > 0
    assert figure("energy", design="figna", stage="prefill", tokens=128) > 0
    assert figure("loss", design="anda", activations="bfp:g64:m4", kv="fp16") == pytest.approx(100 / 3)
    assert figure("on_front", design="harmonia", activations="bfp:g32:m8", kv="bfp4") is True
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
        (["compare", "--tokens", "2K"], "--tokens needs lengths with commas between"),
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
