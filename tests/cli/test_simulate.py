import pytest
import torch

from tilepress.formats import parse_weight
from tilepress.tiles import pack, save

SMALL = ("--parameters", 56 * 512 * 40)


def test_deca(call, call_for_records, tmp_path):
    page = tmp_path / "t.html"
    figure = call_for_records("simulate", "deca", "--weights", "bf8", "--density", 0.2, "--html", page, *SMALL)
    assert figure("rate", target="spr-hbm", system="deca:w32:l8", format="bf8", density=0.2) > 0
    assert 0 < figure("busy", part="decompressor") < 100
    assert figure("lines", requester="demanded") + figure("lines", requester="prefetched") > 0
    assert figure("area") == pytest.approx(2.22, abs=0.01) and figure("power") > 1
    text = page.read_text()
    assert "in the decompressor" in text and text.count('"in the decompressor"') == 1 and len(text) < 200_000
    assert not figure.has("start")
    done = call("simulate", "deca", "--system", "software", *SMALL)
    assert done.returncode == 0 and "stall, memory" in done.stdout and "spr-hbm, software" in done.stdout


def test_tiles_are_recorded_where_the_page_draws_them(call_for_records):
    figure = call_for_records("simulate", "deca", "--weights", "bf8", "--trace", 3, *SMALL)
    starts = [figure("start", tile=tile, step="in the decompressor") for tile in range(3)]
    assert starts == sorted(starts) and figure("cycles", tile=0, step="in the decompressor") > 0
    assert figure.has("start", tile=2) and not figure.has("start", tile=3)
    assert not call_for_records("simulate", "deca", *SMALL).has("start")


def test_features_cost_what_they_should(call_for_records):
    def rate(*arguments):
        return call_for_records("simulate", "deca", "--weights", "bf8", "--density", 0.05, *SMALL, *arguments)("rate")

    whole = rate()
    late = ["--flush-every", 4, "--flush-after", 160]
    for less in (["--fence"], ["--through-l2"], ["--prefetcher", "none"], ["--llc"], late, ["--queue", 1], ["--dram"]):
        assert rate(*less) < whole


def test_the_band_and_the_closed_form(call, call_for_records):
    kernel = ("--weights", "bf8", "--density", 0.05, *SMALL)
    figure = call_for_records("simulate", "deca", *kernel, "--band")
    least, most = figure("rate_least"), figure("rate_most")
    assert least < 0.7 * most and least < figure("rate") < 1.05 * most
    assert 16 < figure("closed_form_cycles_per_tile") < figure("cycles_per_tile") * 1.1
    shown = call("simulate", "deca", *kernel, "--band").stdout
    assert "rate least" in shown and "closed form cycles per tile" in shown


def test_squashed_calls_are_shown_by_where_they_were(call_for_records):
    figure = call_for_records("simulate", "deca", "--flush-every", 4, *SMALL)
    assert figure("squashed", stage="queue") > 0 and figure.has("squashed", stage="finished")
    assert not call_for_records("simulate", "deca", *SMALL).has("squashed")


def test_all_row_panels_take_time(call_for_records):
    times = [call_for_records("simulate", "deca", "--batch", batch, *SMALL)("time") for batch in (1, 16, 17, 64)]
    assert times[0] <= times[1] < 1.05 * times[0] and times[2] > 1.9 * times[1] and times[3] > 3.8 * times[1]


def test_the_machine_that_the_doctor_has_measured(call, call_for_records, tmp_path):
    file = tmp_path / "mine.yaml"
    done = call("doctor", "--machine", file)
    if "describe it in a YAML file" in done.stderr:
        pytest.skip("a processor that nothing is known of")
    figure = call_for_records("simulate", "deca", "--machine", file, "--parameters", 10**6)
    assert done.returncode == 0 and figure("rate", target="mine", format="mxfp4") > 0
    refused = call("doctor", "--machine", tmp_path / "mine.txt")
    assert refused.returncode == 1 and "ends in .yaml" in refused.stderr


def test_the_bitmasks_of_a_packed_file(call, call_for_records, tmp_path):
    weight = torch.randn(128, 256, generator=torch.Generator().manual_seed(0))
    weight[:, 128:] = 0  # half of the tiles are full, half are empty
    uneven = pack(weight, parse_weight("bf8"), mask=weight != 0)
    save(tmp_path / "p.safetensors", {"other": pack(weight, parse_weight("int4:g32")), "uneven": uneven})
    options = ("--packed", tmp_path / "p.safetensors", "--cores", 4, "--bandwidth", 2000)
    figure = call_for_records("simulate", "deca", *options, "--layer", "uneven")
    random = call_for_records("simulate", "deca", *options[2:], "--weights", "bf8", "--density", 0.5,
                              "--parameters", 128 * 256)  # fmt: skip
    kernel = {"format": "bf8", "density": 0.5}
    assert figure("cycles_per_tile", **kernel) != random("cycles_per_tile", **kernel)
    assert call_for_records("simulate", "deca", *options).has("rate", format="int4:g32", density=1)
    assert "has no matrix 'q'; there are other, uneven" in call("simulate", "deca", *options, "--layer", "q").stderr


def test_a_slower_memory(call_for_records):
    def rate(*arguments):
        return call_for_records("simulate", "deca", *SMALL, *arguments)("rate")

    assert rate("--bandwidth", 100) < rate() and rate("--latency", 800) < rate() == rate("--latency", 57.2)


def test_the_list_of_fitted_parameters(call, call_for_records):
    figure = call_for_records("simulate", "deca", "--fitted")
    assert figure("fitted_parameter", simulator="deca", parameter="memory_latency") == 57.2
    assert "fitted to" in call("simulate", "deca", "--fitted").stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--machine", "h100-80gb-pcie"], "says nothing of its caches"),
        (["--engine", "libxsmm"], "an engine is written deca:w32:l8"),
        (["--system", "baseline"], "the baseline multiplies dense bf16"),
        (["--density", "0"], "a density is above 0"),
        (["--bandwidth", "0"], "above 0"),
        (["--packed", "none.safetensors"], "none.safetensors"),
        (["--model", "gpt-2"], "no model 'gpt-2'; there are llama2-70b, opt-66b"),
    ],
)
def test_errors(call, arguments, message):
    done = call("simulate", "deca", *SMALL, *arguments)
    assert done.returncode == 1 and message in done.stderr and not done.stdout
