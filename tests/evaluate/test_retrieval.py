"""Facts far back in a text: where they stand, and whether a model finds them, as it does by decoding."""

import pytest
import torch
from transformers import DynamicCache

import tilepress
from tests.evaluate.tiny import tiny_tokenizer
from tests.nn.kv_models import make, prompt
from tilepress.evaluate.accuracy import Sequel, are_greedy
from tilepress.evaluate.kv_studies import Cache
from tilepress.evaluate.retrieval import make_fact, retrieval


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_fact_stands_where_it_should(depth):
    tokenizer = tiny_tokenizer()
    fact = make_fact(tokenizer, 300, depth, seed=3)
    sentence = fact.text[fact.text.index("The treasure") :].split(".")[0]
    assert sentence.endswith(fact.answer) and sentence.startswith(fact.text.split(". ")[-1])
    assert 200 < len(tokenizer(fact.text)["input_ids"]) <= 300
    assert abs(fact.text.index("The treasure") / len(fact.text) - depth) < 0.2
    assert fact == make_fact(tokenizer, 300, depth, seed=3) != make_fact(tokenizer, 300, depth, seed=4)


def test_what_the_model_says_counts(monkeypatch):
    model, tokenizer = make(), tiny_tokenizer()
    model.resize_token_embeddings(len(tokenizer))

    def ask(batch=1):
        return retrieval(model, tokenizer, Cache("bfp4"), 60, 4, batch).value

    assert ask() == ask(3) == 0.0  # it knows nothing
    monkeypatch.setitem(are_greedy.__globals__, "predictions", knowing)
    assert ask() == ask(3) == 1.0
    monkeypatch.setitem(are_greedy.__globals__, "predictions", lambda *arguments: knowing(*arguments).roll(1, 1))
    assert ask() == ask(3) == 0.0


def knowing(_, tokens, scored):
    return torch.nn.functional.one_hot(tokens[:, -scored:], 400).float()


def test_a_text_that_the_model_does_not_take():
    with pytest.raises(ValueError, match="the model takes 512 tokens at once, not a window of 600"):
        retrieval(make(), tiny_tokenizer(), Cache("bfp4"), 600, 1)


@torch.no_grad()
def decoded(model, tokens, count, cache):
    """The likeliest tokens after `tokens` [1, length], one by one: the specification of `are_greedy`."""
    said, new = [], tokens
    for _ in range(count):
        new = model(new, past_key_values=cache).logits[:, -1:].argmax(-1)
        said.append(int(new))
    return said


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", ["fp16", "bfp8", "bfp4", "bfp:m4", "bfp:m2"])
def test_one_pass_tells_what_decoding_writes(name, batch):
    """Prompts end within, at and after a group of 32 tokens, and answers cross its end; half are wrong somewhere."""
    model, sequels, wanted = make(), [], []
    for number, length in enumerate((27, 30, 32, 33, 61, 64, 97, 120)):
        tokens = prompt(length, seed=number)
        said = decoded(model, tokens, 6, tilepress.kv_cache(model, name))
        wrong = list(said)
        wrong[number % 6] = (wrong[number % 6] + 1) % 90
        for answer in (said, wrong):
            sequels.append(Sequel(tokens[0].tolist() + answer, length))
            wanted.append(answer == said)
    with Cache(name).emulated(model):
        assert are_greedy(model, sequels, batch) == wanted


def test_caches_write_different_answers():
    """Else the test above could not tell one cache from another."""
    model, tokens = make(), prompt(120, seed=7)
    plain = decoded(model, tokens, 40, DynamicCache(config=model.config))
    assert plain != decoded(model, tokens, 40, tilepress.kv_cache(model, "bfp:m2"))
