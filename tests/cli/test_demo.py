"""`tilepress demo`: the whole journey, on a tiny model."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

from tilepress.bench.idle import available_cpus
from tilepress.cli import demo
from tilepress.cli.demo import PROMPT

VARIANTS = ("uint4:g32+bfp:g32:m7", "uint4:g32+int8")


@pytest.fixture
def model(tmp_path, monkeypatch):
    folder, text = tiny.save(tmp_path / "model", max_position_embeddings=512)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("wikitext2-test.txt", "wikitext2-train.txt"):
        (data / name).write_text(" ".join([text.read_text()] * 2))
    monkeypatch.setenv("TILEPRESS_DATA", str(data))
    return str(folder)


def test_every_model_is_compressed_judged_heard_and_timed(model, call_for_records):
    figure = call_for_records("demo", model, "--windows", 1)
    for name in (model, *VARIANTS):
        assert figure("perplexity", model=name) > 1 and figure("text", model=name).startswith(PROMPT)
        assert figure("prefill", model=name) > 0 and figure("decode", model=name) > 0
        assert figure("decode", model=name, statistic="standard_deviation") > 0
    assert figure("run_by", model=model).startswith("transformers")
    for name in VARIANTS:
        assert figure("run_by", model=name) == "Tilepress"
        assert figure("predicted_decode", model=name) > 0
        assert figure("size", model=name) < figure("size", model=model)
        assert figure("kl_divergence", model=name) > 0 and 0 < figure("same_top1", model=name) < 1
    assert figure("limit", domain="memory", target="here", format="int4:g32", density=1.0) > 0
    assert figure("busy") and figure("load_average", cpus=available_cpus()) >= 0


def test_a_verdict_a_table_and_texts_for_people(model, tmp_path, call):
    done = call("demo", model, "--windows", 1, "--html", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "before and after</title>" in (tmp_path / "page.html").read_text()
    first, *_ = done.stdout.splitlines()
    assert first.startswith(f"{model} in uint4:g32+") and " × its perplexity" in first and " × transformers" in first
    assert f"{model} on wikitext2" in done.stdout and "same top-1, %" in done.stdout
    assert f"written: {tmp_path / 'page.html'}" in done.stdout
    assert f"next: tilepress compress {model} -o small --weights uint4:g32 --acts " in done.stdout


@dataclass(frozen=True)
class Figure:
    value: float = 0.0
    mean: float = 0.0


@pytest.mark.parametrize(("losses", "rates", "first"), [
    ((1.005, 1.009), (50, 60), "two"),  # both kept it: the faster one
    ((1.005, 1.02), (50, 60), "one"),  # one kept it
    ((1.05, 1.02), (90, 60), "two"),  # none did: the better one
])  # fmt: skip
def test_what_comes_first(losses, rates, first):
    rows = {"peer": row(None, 99)} | dict(zip(("one", "two"), map(row, losses, rates), strict=True))
    assert demo._ranked(rows)[0] == first and demo._ranked(rows)[-1] == "peer"


def row(loss, rate):
    judged = SimpleNamespace(perplexity=Figure(value=10 * (loss or 0)))
    reference = SimpleNamespace(perplexity=Figure(value=10.0))
    quality = SimpleNamespace(model=judged, reference=reference) if loss else None
    return demo.Row(SimpleNamespace(decode=Figure(mean=rate)), quality=quality)


def test_without_the_model_and_without_a_network(tmp_path, call):
    done = call("demo", TILEPRESS_CACHE=str(tmp_path), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert_refused(done, f"smollm2-135m is not in {tmp_path} and could not be downloaded")
