"""Multiple choice: batches of padded sequels give what each gives alone, and what lm-eval gives."""

import json
import math
import os
from functools import cache
from itertools import combinations

import pytest
import torch

from tests.evaluate.tiny import tiny_model, tiny_tokenizer
from tilepress.evaluate import Question, accuracy, read_task, reference
from tilepress.evaluate.accuracy import encode, log_likelihoods
from tilepress.models.texts import TextUnavailableError

GOALS = ["How do I boil an egg?", "dresser", "To clean a very dirty cup with stains of tea,"]
SOLUTIONS = ["use water ", "wait for it: a long while, é, until nothing is left of it at all", "no", "a cup of soda"]
# Right is the longer one: a likelihood for the whole choice and one a character then differ in their verdict.
ITEMS = [
    {"goal": goal, "sol1": one, "sol2": other, "label": int(len(other) > len(one))}
    for goal in GOALS
    for one, other in combinations(SOLUTIONS, 2)
]


@pytest.fixture
def piqa(tmp_path, monkeypatch):
    """The file in which PIQA is looked for."""
    monkeypatch.setenv("TILEPRESS_DATA", str(tmp_path))
    path = tmp_path / "piqa-valid.jsonl"
    path.write_text("\n".join(map(json.dumps, ITEMS)) + "\n")
    return path


@pytest.fixture
def questions(piqa):
    return read_task("piqa")


def sequels_of(tokenizer, questions):
    return [encode(tokenizer, one.prompt, " " + choice) for one in questions for choice in one.choices]


def test_piqa_is_asked_as_lm_eval_asks_it(questions):
    assert questions[0] == Question("Question: How do I boil an egg?\nAnswer:", ("use water ", SOLUTIONS[1]), answer=1)
    assert len(questions) == len(ITEMS)


@pytest.mark.parametrize("batch", [1, 2, 5, 100])
def test_padded_batches_give_what_single_tokens_give(any_model, tokenizer, questions, batch):
    sequels = sequels_of(tokenizer, questions)[::4]
    assert len({len(sequel.tokens) for sequel in sequels}) > 3
    expected = [reference.log_likelihood(any_model, sequel.tokens, sequel.start) for sequel in sequels]
    assert log_likelihoods(any_model, sequels, batch) == pytest.approx(expected, abs=1e-4)


def test_padding_is_masked(any_model, tokenizer, questions):
    masks = []
    hook = any_model.register_forward_pre_hook(
        lambda _, __, named: masks.append(named["attention_mask"]), with_kwargs=True
    )
    sequels = sequels_of(tokenizer, questions[:3])
    log_likelihoods(any_model, sequels, batch=len(sequels))
    hook.remove()
    lengths = sorted((len(sequel.tokens) for sequel in sequels), reverse=True)
    assert masks[0].sum(1).tolist() == lengths and masks[0].shape == (6, lengths[0])


def test_accuracy_by_hand(model, tokenizer, questions):
    @cache
    def likelihood(question, choice):
        sequel = encode(tokenizer, question.prompt, " " + choice)
        return reference.log_likelihood(model, sequel.tokens, sequel.start)

    def share(score):
        return sum((score(one, one.choices[0]) < score(one, one.choices[1])) == one.answer for one in questions) / len(
            questions
        )

    plain = share(likelihood)
    normalised = share(lambda one, choice: likelihood(one, choice) / len(choice))
    measured = accuracy(model, tokenizer, questions, batch=7)
    assert (measured.plain.value, measured.normalised.value) == pytest.approx((plain, normalised))
    assert plain != normalised and measured.questions == len(questions)
    assert measured.plain.error == pytest.approx(math.sqrt(plain * (1 - plain) / (len(questions) - 1)))


@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_continuation_has_what_comes_after_the_prompt(adds_bos):
    tokenizer = tiny_tokenizer(bos=adds_bos)
    sequel = encode(tokenizer, "Question: x\nAnswer:", " the end")
    assert tokenizer.decode(sequel.tokens[sequel.start :]) == " the end"
    assert (sequel.tokens[0] == tokenizer.bos_token_id) is adds_bos
    with pytest.raises(ValueError, match="leaves nothing to predict of '' after 'a'"):
        encode(tokenizer, "a", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it should have a JSON object a line"),
        ("{}\n", r"line 1 of .*piqa-valid\.jsonl is not an item of this task: KeyError\('sol1'\)"),
        (json.dumps(ITEMS[0]) + "\nnonsense", "line 2 of .* is not an item of this task: JSONDecodeError"),
        (json.dumps(ITEMS[0] | {"label": 2}), "label is 2, not 0 or 1"),
        ("[1]", "line 1 of .* is not an item"),
    ],
)
def test_a_broken_file_is_refused_by_its_line(piqa, text, message):
    piqa.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_task("piqa")


def test_items_of_ones_own(tmp_path, questions):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, ITEMS[3:5])))
    assert read_task(f"piqa:{path}") == questions[3:5]
    for name in ("", str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(ValueError, match="names no file of items: give the path of one, a JSON object a line"):
            read_task(f"piqa:{name}")


def test_differences_are_of_item_by_item(model, tokenizer, questions):
    ours, theirs = (accuracy(one, tokenizer, questions) for one in (model, tiny_model(seed=1)))
    paired, gains = ours.minus(theirs), ours.is_right - theirs.is_right
    assert gains.any() and not gains.all()
    assert paired.plain.value == pytest.approx(ours.plain.value - theirs.plain.value)
    assert paired.normalised.value == pytest.approx(ours.normalised.value - theirs.normalised.value)
    assert paired.plain.error == pytest.approx(gains[0].std().item() / math.sqrt(len(questions)))
    assert paired.same.value == pytest.approx((gains[0] == 0).double().mean().item())
    same = ours.minus(ours)
    assert (same.plain.value, same.plain.error, same.same.value) == (0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="18 and 2 questions are not of the same ones"):
        ours.minus(accuracy(model, tokenizer, questions[:2]))


def test_unknown_and_missing_tasks(piqa):
    with pytest.raises(ValueError, match="unknown task 'pica'; there is piqa, and piqa:FILE"):
        read_task("pica")
    piqa.unlink()
    with pytest.raises(TextUnavailableError, match=r"piqa-valid\.jsonl is not in"):
        read_task("piqa")


def test_the_real_file_is_read():
    try:
        questions = read_task("piqa") if os.environ.get("TILEPRESS_DATA") else []
    except TextUnavailableError as error:
        pytest.skip(str(error))
    if not questions:
        pytest.skip("needs piqa-valid.jsonl in the folder TILEPRESS_DATA")
    assert {len(one.choices) for one in questions} == {2}
    assert 0.4 < torch.tensor([one.answer for one in questions]).float().mean() < 0.6
