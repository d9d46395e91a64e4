"""Studies of caches, on small random models."""

import copy

import pytest
import torch

from tests.evaluate.tiny import tiny_tokenizer
from tests.nn.test_kv_cache import make, prompt
from tilepress.evaluate import Windowing, kv_studies
from tilepress.evaluate.kv_studies import BeforeRotation, Cache, Everywhere, judge, make_fact, retrieval
from tilepress.formats import BFP


def test_fewer_bits_are_farther_from_halves():
    model, tokens = make(), prompt(200)[0]
    caches = [Cache("fp16"), Cache("bfp8"), Cache("bfp:m4"), Cache("bfp:m2"), Cache("bfp:m4", "online")]
    found = judge(model, tokens, caches, Windowing(window=100))
    distances = [found[cache].kl.value for cache in caches[:4]]
    assert distances[0] == 0 and distances == sorted(distances) and distances[1] < distances[3] / 10
    assert found[caches[4]].kl.value != found[caches[2]].kl.value
    assert model.config._attn_implementation == "sdpa"


def test_settings_do_not_outlast_their_study():
    model, tokens = make(), prompt(60)[0]
    settings = [Cache("fp16", activations="bfp:g32:m4"), Everywhere(BFP(32, 4)), BeforeRotation("bfp:m4")]
    with torch.no_grad():
        before = model(tokens[None]).logits
        found = judge(model, tokens, settings, Windowing(window=60))
        assert torch.equal(model(tokens[None]).logits, before)
    assert all(found[setting].kl.value > 1e-5 for setting in settings)
    assert found[settings[1]].kl.value > found[settings[0]].kl.value


def test_smoothing_that_is_folded_wants_a_model_that_has_it():
    model, tokens = make(), prompt(60)[0]
    with pytest.raises(ValueError, match="offline smoothing is folded into weights, and no model was given"):
        judge(model, tokens, [Cache("bfp4", "offline")])
    twin = copy.deepcopy(model)
    settings = [Cache("bfp4"), Cache("bfp4", "offline")]
    found = judge(model, tokens, settings, smoothed={settings[1]: twin})
    assert found[settings[0]] == found[settings[1]]  # nothing was folded
    with pytest.raises(ValueError, match="activations fp or bfp:gN:mN, not"):
        judge(model, tokens, [Cache("bfp4", activations="int8")])


def test_settings_in_words():
    named = {
        "bfp4": Cache("bfp4"),
        "bfp4, hybrid": Cache("bfp4", "hybrid"),
        "bfp4, 3 offsets, bfp:g32:m8": Cache("bfp4", "none", "bfp:g32:m8", 3),
    }
    assert {str(cache) for cache in named.values()} == set(named)


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_fact_stands_where_it_should(depth):
    tokenizer = tiny_tokenizer()
    fact = make_fact(tokenizer, 300, depth, seed=3)
    sentence = fact.text[fact.text.index("The door code") :].split(".")[0]
    assert sentence.endswith(fact.answer) and sentence.startswith(fact.text.split(". ")[-1])
    assert 200 < len(tokenizer(fact.text)["input_ids"]) <= 300
    assert abs(fact.text.index("The door code") / len(fact.text) - depth) < 0.2
    assert fact == make_fact(tokenizer, 300, depth, seed=3) != make_fact(tokenizer, 300, depth, seed=4)


def test_what_the_model_says_counts(monkeypatch):
    model, tokenizer = make(), tiny_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    assert retrieval(model, tokenizer, Cache("bfp4"), 60, 2).value == 0.0  # it knows nothing
    monkeypatch.setattr(kv_studies, "predictions", knowing)
    assert retrieval(model, tokenizer, Cache("bfp4"), 60, 2).value == 1.0
    monkeypatch.setattr(kv_studies, "predictions", lambda *arguments: knowing(*arguments).roll(1, 1))
    assert retrieval(model, tokenizer, Cache("bfp4"), 60, 2).value == 0.0


def knowing(_, tokens, scored):
    return torch.nn.functional.one_hot(tokens[:, -scored:], 400).float()


@torch.no_grad()
def test_what_is_most_likely_is_what_is_written():
    model, tokenizer = make(), tiny_tokenizer()
    model.resize_token_embeddings(len(tokenizer))
    text = tokenizer(make_fact(tokenizer, 60, 0.5, 1).text, return_tensors="pt")
    said = model.generate(**text, max_new_tokens=3, do_sample=False)
    logits = kv_studies.predictions(model, said, 3)
    assert logits.argmax(-1)[0].tolist() == said[0, -3:].tolist()
