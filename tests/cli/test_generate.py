"""`tilepress generate`, as a user types it, on a tiny compressed model."""

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

from tilepress.kernels import placement
from tilepress.models import compress_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, _ = tiny.save(tmp_path_factory.mktemp("cli") / "model")
    compress_folder(str(folder), folder.parent / "out", {"activations": {"format": "int8"}})
    return str(folder.parent / "out")


def test_text_on_one_stream_and_speed_on_the_other(model, call, call_for_records):
    done = call("generate", model, "w5 w6 w7", "--tokens", 8)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("w") and "w5 w6 w7" not in done.stdout
    assert "tokens, " in done.stderr and " a second" in done.stderr
    figure = call_for_records("generate", model, "w5 w6 w7", "--tokens", 8)
    assert figure("text", model=model, turn=1) == done.stdout.strip() and 0 < figure("tokens") <= 8
    assert figure("rate") == pytest.approx(figure("tokens") / figure("time"))


def test_a_text_ends_where_the_model_does(model, call_for_records):
    assert call_for_records("generate", model, " ".join(["w5"] * 60), "--tokens", 100)("tokens") <= 4


def test_a_seed_chooses(model, call_for_records):
    warm = ("generate", model, "w5", "--temperature", 2, "--tokens", 12)
    assert call_for_records(*warm, "--seed", 1)("text") == call_for_records(*warm, "--seed", 1)("text")


def test_the_engine_says_what_transformers_says(model, call_for_records, tmp_path):
    """A saved cache is transformers' way."""
    same = ("generate", model, "w5 w6 w7", "w8", "--tokens", 6, "--kv", "sparse:k30,v50")
    mine, theirs = call_for_records(*same), call_for_records(*same, "--cache", tmp_path / "talk")
    assert [mine("text", turn=turn) for turn in (1, 2)] == [theirs("text", turn=turn) for turn in (1, 2)]


def test_guesses_change_nothing(model, call, call_for_records):
    same = ("generate", model, "w5 w6 w7 w5 w6", "--tokens", 20)
    assert call_for_records(*same)("text") == call_for_records(*same, "--lookup", 4)("text")
    assert_refused(
        call(*same, "--lookup", 4, "--kv", "sparse:k30,v50"), "lookup needs a cache that can take tokens back"
    )
    assert_refused(call(*same, "--lookup", 4, "--cache", "c"), "--lookup and --cache do not go together")


def test_a_draft_changes_nothing(model, call, call_for_records, tmp_path):
    """It is the model itself here, so that all of its guesses are right."""
    same = ("generate", model, "w5 w6 w7", "--tokens", 20, "--temperature", 0.7, "--seed", 3)
    drafted = (*same, "--draft", model, "--draft-tokens", 3)
    figure = call_for_records(*drafted)
    assert figure("text") == call_for_records(*same)("text")
    assert figure("right guesses", turn=1) == figure("guessed tokens", turn=1) > 0
    said = call(*drafted).stderr
    count = int(figure("right guesses"))
    assert f"prompt included; {count} of {count} guesses right" in said
    assert_refused(call(*drafted, "--cache", "c"), "--draft and --cache do not go together")
    assert_refused(call(*same, "--draft", tmp_path / "none"), "none")
    other, _ = tiny.save(tmp_path / "other", vocab_size=50)
    assert_refused(call(*same, "--draft", other), "a draft has the model's vocabulary")


def test_forms_that_are_none(model, call, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text("{")
    assert_refused(call("generate", model, "w5", "--json-schema", schema), "this is no JSON schema: ")
    assert_refused(call("generate", model, "w5", "--json-schema", tmp_path / "none"), "No such file")
    assert_refused(call("generate", model, "w5", "--regex", "a+"), "llguidance cannot read this tokenizer: ")
    assert_refused(call("generate", model, "w5", "--regex", "a", "--cache", tmp_path / "c"), "nor with --cache")


def test_what_is_wrong_is_said(model, call):
    assert_refused(call("generate", model, "w5", "--chat"), "has no chat template: leave --chat out")
    assert_refused(call("generate", model, ""), "the prompt is empty")
    long = call("generate", model, " ".join(["w5"] * 64), "--tokens", 3)
    assert_refused(long, "the prompt has 64 tokens, and the model takes 64 at once: give a shorter one")
    assert_refused(call("generate", model, "w5", "--ranks", 2, "--cache", "talk"), "--ranks and --cache do not go")
    assert_refused(call("generate", model, "w5", "--ranks", 99), "ranks at most, each with 16 channels, not in 99")
    assert_refused(call("generate", "/no/such/model", "w5"), "'/no/such/model' is neither a folder or a GGUF file here")


def test_threads_are_placed_before_the_model_is_loaded(call, monkeypatch):
    placed = []
    monkeypatch.setattr(placement, "use_stored", lambda: placed.append(True))
    assert call("generate", "no/such/folder", "Name a river.").returncode != 0
    assert placed == [True]
