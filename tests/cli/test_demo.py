"""`tilepress demo`: the whole journey, on a tiny model."""

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

VARIANTS = ("uint4:g32+int8", "int8:row@50%+int8")


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
        assert figure("perplexity", model=name) > 1 and figure("text", model=name)
        assert figure("prefill", model=name) > 0 and figure("decode", model=name) > 0
        assert figure("predicted_decode", model=name) > 0
    for name in VARIANTS:
        assert figure("predicted_decode", model=name) > figure("predicted_decode", model=model)
        assert figure("size", model=name) < figure("size", model=model)
        assert figure("kl_divergence", model=name) > 0 and 0 < figure("same_top1", model=name) < 1
    dense, half = (figure("kl_divergence", model=name) for name in VARIANTS)
    assert half > dense


def test_a_table_and_texts_for_people(model, tmp_path, call):
    done = call("demo", model, "--windows", 1, "--report", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "before and after</title>" in (tmp_path / "page.html").read_text()
    assert f"{model} on wikitext2" in done.stdout and "same top-1, %" in done.stdout
    assert all(f"{name}: The most important thing" in done.stdout for name in (model, *VARIANTS))


def test_without_the_model_and_without_a_network(tmp_path, call):
    done = call("demo", TILEPRESS_CACHE=str(tmp_path), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert_refused(done, f"smollm2-135m is not in {tmp_path} and could not be downloaded")
