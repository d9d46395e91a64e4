"""`tilepress demo`: the whole journey, on a tiny model."""

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

VARIANTS = ("int4:g32+int8", "int8:row@50%+int8")


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
    found = call_for_records("demo", model, "--windows", 1)
    for name in (model, *VARIANTS):
        assert found[f"{name}.perplexity"] > 1 and found[f"{name}.text"]
        assert found[f"{name}.prefill"] > 0 and found[f"{name}.decode"] > 0
        assert found[f"{name}.decode.predicted"] > 0
    for name in VARIANTS:
        assert found[f"{name}.decode.predicted"] > found[f"{model}.decode.predicted"]
        assert found[f"{name}.size"] < found[f"{model}.size"]
        assert found[f"{name}.kl_divergence"] > 0 and 0 < found[f"{name}.same_top1"] < 1
    assert found[f"{VARIANTS[1]}.kl_divergence"] > found[f"{VARIANTS[0]}.kl_divergence"]  # half its weights are gone


def test_a_table_and_texts_for_people(model, tmp_path, call):
    done = call("demo", model, "--windows", 1, "--report", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "before and after</title>" in (tmp_path / "page.html").read_text()
    assert f"{model} on wikitext2" in done.stdout and "same top-1, %" in done.stdout
    assert all(f"{name}: The most important thing" in done.stdout for name in (model, *VARIANTS))


def test_without_the_model_and_without_a_network(tmp_path, call):
    done = call("demo", TILEPRESS_CACHE=str(tmp_path), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert_refused(done, f"smollm2-135m is not in {tmp_path} and could not be downloaded")
