import pytest
import torch

from tilepress.formats import parse_weight
from tilepress.tiles import pack, save

SMALL = ("--parameters", 56 * 512 * 40)


def test_deca(call, call_for_records, tmp_path):
    page = tmp_path / "t.html"
    found = call_for_records("simulate", "deca", "--weights", "bf8", "--density", 0.2, "--timeline", page, *SMALL)
    name = "spr-hbm.deca:w32:l8.bf8@20%"
    assert found[f"{name}.rate"] > 0 and 0 < found[f"{name}.decompressor"] < 100
    assert found[f"{name}.lines.demanded"] + found[f"{name}.lines.prefetched"] > 0
    assert found[f"{name}.area"] == pytest.approx(2.68, abs=0.01) and found[f"{name}.power"] > 1
    assert "in the decompressor" in page.read_text()
    done = call("simulate", "deca", "--system", "software", *SMALL)
    assert done.returncode == 0 and "stall.memory" in done.stdout


def test_tiles_are_recorded_where_the_page_draws_them(call_for_records):
    found = call_for_records("simulate", "deca", "--weights", "bf8", "--trace", 3, *SMALL)
    name = "spr-hbm.deca:w32:l8.bf8@100%.tile"
    starts = [found[f"{name}.{tile}.in the decompressor.start"] for tile in range(3)]
    assert starts == sorted(starts) and found[f"{name}.0.in the decompressor.cycles"] > 0
    assert f"{name}.3.multiplied.start" not in found
    assert not any(".tile." in one for one in call_for_records("simulate", "deca", *SMALL))


def test_features_cost_what_they_should(call_for_records):
    def rate(*arguments):
        found = call_for_records("simulate", "deca", "--weights", "bf8", "--density", 0.05, *SMALL, *arguments)
        return next(value for name, value in found.items() if name.endswith(".rate"))

    whole = rate()
    for less in (["--fence"], ["--through-l2"], ["--prefetcher", "none"], ["--llc"], ["--flush-every", 4]):
        assert rate(*less) < whole


def test_the_machine_that_the_doctor_has_measured(call, call_for_records, tmp_path):
    file = tmp_path / "mine.yaml"
    done = call("doctor", "--machine", file)
    if "describe it in a YAML file" in done.stderr:
        pytest.skip("a processor that nothing is known of")
    found = call_for_records("simulate", "deca", "--machine", file, "--parameters", 10**6)
    assert done.returncode == 0 and found["mine.deca:w32:l8.mxfp4@100%.rate"] > 0
    refused = call("doctor", "--machine", tmp_path / "mine.txt")
    assert refused.returncode == 1 and "ends in .yaml" in refused.stderr


def test_the_bitmasks_of_a_packed_file(call, call_for_records, tmp_path):
    weight = torch.randn(128, 256, generator=torch.Generator().manual_seed(0))
    weight[:, 128:] = 0  # half of the tiles are full, half are empty
    uneven = pack(weight, parse_weight("bf8"), mask=weight != 0)
    save(tmp_path / "p.safetensors", {"other": pack(weight, parse_weight("int4:g32")), "uneven": uneven})
    told = ("--packed", tmp_path / "p.safetensors", "--cores", 4, "--bandwidth", 2000)
    found = call_for_records("simulate", "deca", *told, "--layer", "uneven")
    random = call_for_records("simulate", "deca", *told[2:], "--weights", "bf8", "--density", 0.5,
                              "--parameters", 128 * 256)  # fmt: skip
    name = "spr-hbm.deca:w32:l8.bf8@50%.cycles_per_tile"
    assert found[name] != random[name]
    assert "spr-hbm.deca:w32:l8.int4:g32@100%.rate" in call_for_records("simulate", "deca", *told)
    assert "has no matrix 'q'; there are other, uneven" in call("simulate", "deca", *told, "--layer", "q").stderr


def test_a_slower_memory(call_for_records):
    def rate(*arguments):
        return call_for_records("simulate", "deca", *SMALL, *arguments)["spr-hbm.deca:w32:l8.mxfp4@100%.rate"]

    assert rate("--bandwidth", 100) < rate() and rate("--latency", 2000) < rate() == rate("--latency", 143)


def test_the_list_of_fitted_parameters(call, call_for_records):
    assert call_for_records("simulate", "deca", "--fitted")["deca.fitted.memory_latency"] == 143
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
