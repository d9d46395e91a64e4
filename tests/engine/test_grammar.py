"""Answers of a given form: every text that masks let through matches it, and every text that matches is let through."""

import json
import random
import re
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread

import pytest
import torch
from tests.engine.families import make
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tilepress.engine import Engine, Sampling
from tilepress.engine.grammar import Grammar, GrammarError

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ["tr", "ue", "true", "fal", "se", '":', "12", "ab"]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["ab", "cd"]}, "right": {"type": "boolean"}},
    "required": ["name", "right"],
    "additionalProperties": False,
}


def make_tokenizer(**special):
    names = BYTES + [word for word in WORDS if len(word) > 1] + list(special.values())
    known = {name: number for number, name in enumerate(names)}
    merges = [("t", "r"), ("u", "e"), ("tr", "ue"), ("1", "2"), ("a", "b"), ('"', ":"), ("s", "e"), ("f", "a")]
    known |= {"fa": len(known)}
    merges.append(("fa", "l"))
    one = Tokenizer(models.BPE(vocab=known, merges=merges))
    one.pre_tokenizer, one.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=one, **special)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(eos_token="<end>")


def write(grammar, tokenizer, seed, most=200):
    """A text of tokens chosen at random among those allowed."""
    chosen, tokens = random.Random(seed), []
    for _ in range(most):
        token = chosen.choice(grammar(tokens).nonzero().flatten().tolist())
        if token == tokenizer.eos_token_id:
            return tokenizer.decode(tokens)
        tokens.append(token)
    raise AssertionError("the answer never ends")


def follows(grammar, tokenizer, text):
    """Whether masks let a text and its end through."""
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return all(bool(grammar(ids[:place])[token]) for place, token in enumerate(ids))


@pytest.mark.parametrize("seed", range(5))
def test_a_schema(tokenizer, seed):
    said = json.loads(write(Grammar.json_schema(SCHEMA, tokenizer), tokenizer, seed))
    assert set(said) == {"name", "right"} and said["name"] in ("ab", "cd") and isinstance(said["right"], bool)


@pytest.mark.parametrize("seed", range(5))
def test_a_regular_expression(tokenizer, seed):
    assert re.fullmatch(
        r"(true|fa[lt]){1,3}-[0-9]{2}", write(Grammar.regex(r"(true|fa[lt]){1,3}-[0-9]{2}", tokenizer), tokenizer, seed)
    )


def test_a_grammar(tokenizer):
    grammar = Grammar('start: "a" "b"* | digit+\ndigit: "1" | "2"', tokenizer)
    for text, fits in {"abbb": True, "a": True, "12": True, "221": True, "b": False, "a1": False, "": False}.items():
        assert follows(grammar, tokenizer, text) == fits, text


def test_all_that_a_schema_allows_can_be_said(tokenizer):
    grammar = Grammar.json_schema(SCHEMA, tokenizer)
    for name in ("ab", "cd"):
        assert follows(grammar, tokenizer, json.dumps({"name": name, "right": True}))
    assert not follows(grammar, tokenizer, json.dumps({"name": "ab", "right": 12}))


def test_a_mask_depends_on_the_answer_alone(tokenizer):
    """Answers side by side, begun again, and more of them than states are kept."""
    ids = tokenizer("12" * 80, add_special_tokens=False)["input_ids"]
    grammar = Grammar.regex("(12|ab)*", tokenizer)
    fresh = [Grammar.regex("(12|ab)*", tokenizer)(ids[:n]) for n in (0, 1, 7, 80)]
    for n in range(len(ids)):
        grammar(ids[:n])
    for n, expected in zip((0, 1, 7, 80), fresh, strict=True):
        assert torch.equal(grammar(ids[:n]), expected)


def test_masks_prepared_in_other_threads_are_the_same(tokenizer):
    grammar, plain = (Grammar.json_schema(SCHEMA, tokenizer) for _ in range(2))
    ids = tokenizer(json.dumps({"name": "ab", "right": True}), add_special_tokens=False)["input_ids"]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: grammar.prepare(ids[:n]), range(len(ids))))
        masks = list(threads.map(lambda n: grammar(ids[:n]), range(len(ids))))
    for n, mask in enumerate(masks):
        assert torch.equal(mask, plain(ids[:n]))


def test_an_engine_asks_for_masks_before_it_needs_them(tokenizer, monkeypatch):
    """Answers of any form, several at once, and none of their masks is computed in the engine's thread."""
    model = make("llama", vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=tokenizer.eos_token_id)
    grammar = Grammar.regex("(12|ab)[0-9]{3}", tokenizer)
    seen, mask = [], Grammar._mask
    monkeypatch.setattr(Grammar, "_mask", lambda self, tokens: seen.append(current_thread()) or mask(self, tokens))
    engine = Engine(model, decode=tokenizer.decode)
    ask = Sampling(mask=grammar, temperature=1.0, n=3, max_tokens=20)
    streams = [engine.submit([3, 4, 5], ask) for _ in range(2)]
    engine.run()
    for answer in (answer for stream in streams for answer in stream.answers):
        assert answer.finish_reason == "stop" and re.fullmatch("(12|ab)[0-9]{3}", answer.text)
    assert seen and main_thread() not in seen


def test_answers_that_nobody_waits_for_are_forgotten(tokenizer):
    grammar = Grammar.regex("[0-9]*", tokenizer)
    digit = tokenizer("7", add_special_tokens=False)["input_ids"]
    for count in range(200):
        grammar.prepare(digit * count)
    assert len(grammar._masks) <= 64
    assert torch.equal(grammar(digit * 3), grammar(digit * 150))


def test_a_model_that_knows_more_tokens(tokenizer):
    size = len(tokenizer)
    mask = Grammar.regex("a+", tokenizer, vocabulary=size + 37)([])
    assert mask.shape == (size + 37,) and not mask[size:].any()
    assert torch.equal(mask[:size], Grammar.regex("a+", tokenizer)([]))


def test_other_ends(tokenizer):
    """Any token can be one."""
    end = tokenizer("q", add_special_tokens=False)["input_ids"][0]
    mask = Grammar.regex("a?", tokenizer, eos=[end])([])
    assert mask[end] and not mask[tokenizer.eos_token_id]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda one: Grammar("begin: 'a'", one), "this is no form of answers: "),
        (lambda one: Grammar.regex("(", one), "this is no form of answers: "),
        (lambda one: Grammar.json_schema("{", one), "this is no JSON schema: "),
        (lambda one: Grammar.json_schema({"type": "colour"}, one), "this is no form of answers: "),
    ],
)
def test_what_is_no_form(tokenizer, make, error):
    with pytest.raises(GrammarError, match=error):
        make(tokenizer)


def test_tokens_that_do_not_fit(tokenizer):
    ids = tokenizer("b", add_special_tokens=False)["input_ids"]
    with pytest.raises(ValueError, match="the grammar cannot go on: "):
        Grammar.regex("a+", tokenizer)(ids)


def test_answers_that_cannot_end():
    with pytest.raises(GrammarError, match="this tokenizer has no end-of-sequence id"):
        Grammar.regex("a", make_tokenizer())
