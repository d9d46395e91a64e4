"""`tilepress eval` as a user types it, on small random models in folders."""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from tests.cli import test_cli
from tests.cli.test_cli import assert_refused
from tests.evaluate.tiny import tiny_model, tiny_tokenizer, write_lm_eval_tasks
from transformers import LlamaForCausalLM

from tilepress.evaluate import Windowing, accuracy, divergence, perplexity, read_task, tokenize
from tilepress.formats import Anda
from tilepress.models.tensor_types import classify, layer_formats
from tilepress.nn import emulated
from tilepress.nn.emulation import to_int8

TEXT = "Text of a few lines,\nall of them short,\nto be read by a small model again and again.\n" * 4
ITEM = {"goal": "Boil an egg", "sol1": "in water", "sol2": "in a paper bag, outside, at night", "label": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With two models, `one` and `other`, one with another tokenizer, `stranger`, a text and PIQA."""
    folder = tmp_path_factory.mktemp("eval")
    for seed, name in enumerate(["one", "other", "stranger"]):
        tiny_model(seed=seed).save_pretrained(folder / name)
        tokenizer = tiny_tokenizer()
        tokenizer.add_tokens(["lines"] if name == "stranger" else [])
        tokenizer.save_pretrained(folder / name)
    (folder / "text").write_text(TEXT)
    (folder / "piqa-valid.jsonl").write_text("\n".join(json.dumps(ITEM | {"label": i % 2}) for i in range(3)))
    return folder


@pytest.fixture(scope="module")
def ours(folder):
    """(the two models as loaded again, the tokens of the text)."""
    models = [LlamaForCausalLM.from_pretrained(folder / name).eval() for name in ("one", "other")]
    return models, tokenize(tiny_tokenizer(), TEXT)


@pytest.fixture(autouse=True)
def _in_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TILEPRESS_DATA", str(folder))
    monkeypatch.setenv("TILEPRESS_CACHE", str(folder / "cache"))


def test_a_process_of_its_own_prints_records_and_nothing_else():
    records = test_cli.checked(test_cli.run("eval", "one", "--data", "text", "--windows", 1, "--json")).records
    on = {"model": "one", "text": "text"}
    assert [(one.metric, one.labels) for one in records] == [
        ("perplexity", on),
        ("perplexity", {**on, "statistic": "standard_error"}),
        ("tokens", on),
    ]


def test_perplexity(ours, call_for_records):
    (model, _), tokens = ours
    expected = perplexity(model, tokens, Windowing(window=32, stride=16, limit=3))
    figure = call_for_records(
        "eval", "one", "--data", "text", "--window", 32, "--stride", 16, "--windows", 3, "--batch", 2
    )
    assert figure("perplexity") == pytest.approx(expected.perplexity.value, rel=1e-6)
    assert figure("perplexity", statistic="standard_error") == pytest.approx(expected.perplexity.error, rel=1e-5)
    assert figure("tokens", model="one", text="text") == 31 + 16 + 16


def test_windows_may_begin_with_the_token_for_that(ours, call_for_records):
    (model, _), tokens = ours
    expected = perplexity(model, tokens, Windowing(window=32, begin=0)).perplexity.value
    figure = call_for_records("eval", "one", "--data", "text", "--window", 32, "--bos")
    assert figure("perplexity") == pytest.approx(expected, rel=1e-6)


def test_windows_begin_as_the_tokenizer_begins_a_text(ours, call_for_records):
    (model, _), tokens = ours
    model.save_pretrained("begins")
    tiny_tokenizer(bos=True).save_pretrained("begins")
    for options, begin in (((), 0), (("--no-bos",), None)):
        expected = perplexity(model, tokens, Windowing(window=32, begin=begin)).perplexity.value
        figure = call_for_records("eval", "begins", "--data", "text", "--window", 32, *options)
        assert figure("perplexity") == pytest.approx(expected, rel=1e-6)


def test_against_a_reference(ours, call_for_records):
    models, tokens = ours
    expected = divergence(*models, tokens, Windowing(window=64))
    figure = call_for_records("eval", "one", "--data", "text", "--against", "other", "--window", 64)
    assert figure("kl_divergence") == pytest.approx(expected.kl.value, rel=1e-5)
    assert figure("kl_divergence", statistic="p99") == pytest.approx(expected.kl_percentiles[99.0], rel=1e-5)
    assert figure("same_top1") == expected.same_top.value
    assert figure("same_top1", statistic="standard_error") == pytest.approx(expected.same_top.error)
    assert figure("reference_perplexity") == pytest.approx(expected.reference.perplexity.value, rel=1e-6)
    assert figure("perplexity_ratio") == pytest.approx(expected.ratio.value, rel=1e-6)


def test_a_task_alone(ours, call_for_records):
    (model, _), _ = ours
    expected = accuracy(model, tiny_tokenizer(), read_task("piqa"))
    figure = call_for_records("eval", "one", "--task", "piqa")
    assert figure("accuracy", task="piqa") == expected.plain.value
    error = figure("accuracy_normalised", statistic="standard_error")
    assert error == pytest.approx(expected.normalised.error)
    assert figure("items") == 3 and not figure.has("perplexity")


def test_a_task_of_ones_own_against_a_reference(ours, call_for_records, tmp_path):
    models, _ = ours
    mine = tmp_path / "mine.jsonl"
    items = [
        {"goal": goal, "sol1": "use water", "sol2": "wait for it", "label": i % 2} for i, goal in enumerate("abcdefg")
    ]
    mine.write_text("\n".join(map(json.dumps, items)))
    name = f"piqa:{mine}"
    score, other = (accuracy(model, tiny_tokenizer(), read_task(name)) for model in models)
    figure = call_for_records("eval", "one", "--task", name, "--against", "other", "--data", "text")
    assert figure("reference_accuracy", task=name) == other.plain.value
    paired = score.minus(other)
    assert figure("accuracy_difference") == paired.plain.value
    assert figure("accuracy_difference", statistic="standard_error") == pytest.approx(paired.plain.error)
    assert figure("accuracy_normalised_difference") == paired.normalised.value
    assert figure("same_verdict") == paired.same.value and figure("items") == 7
    assert figure("perplexity_ratio", text="text")


@pytest.fixture
def lm_eval_tasks(tmp_path):
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate", reason="lm-eval's models need accelerate")
    return ("--lm-eval-folder", write_lm_eval_tasks(tmp_path))


def test_tasks_of_lm_eval(lm_eval_tasks, call_for_records, call):
    figure = call_for_records("eval", "one", "--lm-eval", "eggs,answers", *lm_eval_tasks, "--items", 4, "--batch", 3)
    assert [(one.labels["task"], one.metric, one.labels.get("statistic")) for one in figure.records] == [
        *(("eggs", metric, statistic) for metric in ("acc", "acc_norm") for statistic in (None, "standard_error")),
        ("eggs", "items", None),
        *(("answers", "exact_match", statistic) for statistic in (None, "standard_error")),
        ("answers", "items", None),
    ]
    assert figure.all("items") == [4, 4] and 0 <= figure("acc") <= 1
    done = call("eval", "one", "--lm-eval", "eggs", *lm_eval_tasks, "--data", "text")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "one on text" in done.stdout and "one on eggs" in done.stdout and "acc_norm" in done.stdout
    assert_refused(call("eval", "one", "--lm-eval", "eggs,", *lm_eval_tasks), "names of tasks with commas between")
    assert_refused(call("eval", "one", "--lm-eval", "eggs", "--lm-eval-folder", "nowhere"), "nowhere is no folder")
    assert_refused(call("eval", "one", *lm_eval_tasks), "holds tasks for --lm-eval: name some of them there")


def test_text_and_task_as_tables(call):
    done = call("eval", "one", "--data", "text", "--task", "piqa", "--items", 2)
    assert done.returncode == 0, done.stderr
    assert "one on text" in done.stdout and "perplexity" in done.stdout
    assert "one on piqa" in done.stdout and "accuracy, by likelihood a character" in done.stdout


def test_the_first_line_is_the_conclusion(call, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("text").read_bytes())))
    done = call("eval", "one", "--data", "-", "--windows", 1, "--against", "one")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == (
        "one on standard input: perplexity +0.00 ± 0.00 % against one (no more than its error allows), "
        "the same token most likely in 100.0 %"
    )
    alone = call("eval", "one", "--data", "text", "--windows", 1).stdout.splitlines()
    assert re.fullmatch(r"one on text: perplexity [\d.]+ ± [\d.]+", alone[0])
    task = call("eval", "one", "--task", "piqa", "--items", 2, "--windows", 1, "--against", "one").stdout
    assert re.search(r"^one on piqa: accuracy [\d.]+ ± [\d.]+, \+0\.0000 ± 0\.0000 against one$", task, re.M), task


def test_without_a_named_text_the_documentation_of_python_is_read(call_for_records):
    assert call_for_records("eval", "one", "--windows", 1).has("perplexity", text="pydoc")


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--data", "wikitext2"], ["wikitext2-test.txt is not in", "TILEPRESS_DATA"]),
        (["--data", "nowhere"], ["no file nowhere"]),
        (["--task", "pica"], ["unknown task 'pica'; there is piqa"]),
        (["--data", "text", "--stride", "65", "--window", "64"], ["a stride of 65 would skip tokens"]),
        (["--data", "text", "--window", "129"], ["the model takes 128 tokens at once"]),
        (["--data", "text", "--window", "1"], ["--window"]),
        (["--data", "text", "--against", "stranger"], ["cut this text into different tokens"]),
    ],
)
def test_refusals(call, arguments, messages):
    assert_refused(call("eval", "one", *arguments), *messages)


def test_texts_too_short_are_refused(call, tmp_path):
    for content, message in [("", "is empty"), ("a", "1 token(s), and at least 2")]:
        (tmp_path / "short").write_text(content)
        assert_refused(call("eval", "one", "--data", tmp_path / "short"), message)


def test_help(call):
    assert "Example: tilepress eval" in call("eval", "--help").stdout


def test_activations_are_rounded_on_weights_of_any_kind(ours, call, call_for_records):
    (model, _), tokens = ours
    plain = call_for_records("eval", "one", "--data", "text", "--windows", 1)("perplexity")
    short = call_for_records("eval", "one", "--data", "text", "--windows", 1, "--acts", "anda:4,4,4,4")
    formats = layer_formats(classify(model), Anda((4, 4, 4, 4)))
    with emulated(model, formats):
        expected = perplexity(model, tokens, Windowing(limit=1)).perplexity.value
    assert short("perplexity", activations="anda:4,4,4,4") == pytest.approx(expected, rel=1e-6) and expected != plain
    fine = call_for_records("eval", "one", "--data", "text", "--windows", 1, "--acts", "bfp:g64:m16")
    assert fine("perplexity") == pytest.approx(plain, rel=1e-4)
    bytes = call_for_records("eval", "one", "--data", "text", "--windows", 1, "--acts", "int8")("perplexity")
    with emulated(model, dict.fromkeys(formats, to_int8)):
        assert bytes == pytest.approx(perplexity(model, tokens, Windowing(limit=1)).perplexity.value, rel=1e-6) != plain
    assert_refused(
        call("eval", "one", "--data", "text", "--acts", "anda:1%"),
        "activations are rounded to bf16, int8, bfp:gN:mN or",
    )
    assert_refused(call("eval", "one", "--data", "text", "--device", "nonsense"), "'nonsense' is no device")
