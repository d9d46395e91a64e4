"""Studies of caches, on small random models."""

import pytest
import torch

from tests.evaluate.tiny import tiny_tokenizer
from tests.nn.test_kv_cache import make, prompt
from tilepress.evaluate import Windowing, kv_studies
from tilepress.evaluate.kv_studies import Cache, judge_caches, make_fact, retrieval
from tilepress.formats.kv import parse_kv


def test_fewer_bits_are_farther_from_halves():
    model, tokens = make(), prompt(200)[0]
    caches = [Cache("fp16"), Cache("bfp8"), Cache("bfp:m4"), Cache("bfp:m2"), Cache("bfp:m4", "online")]
    found = judge_caches(model, tokens, caches, Windowing(window=100))
    distances = [found[cache].kl.value for cache in caches[:4]]
    assert distances[0] == 0 and distances == sorted(distances) and distances[1] < distances[3] / 10
    assert found[caches[4]].kl.value != found[caches[2]].kl.value
    assert model.config._attn_implementation == "sdpa"


def test_every_study_names_caches_that_there_are():
    studies = [kv_studies.MANTISSAS, kv_studies.ASYMMETRIC, kv_studies.ABLATION]
    for cache in [*sum(studies, ()), *kv_studies.SPARSITY, *kv_studies.SPARSE_BFP8]:
        assert parse_kv(cache.format)
    assert len(kv_studies.SPARSITY) == 15 and str(kv_studies.ABLATION[2]) == "bfp4, online"


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
    answers = iter([make_fact(tokenizer, 60, *item).answer for item in items(2)])

    def knows(input_ids, **_):
        said = tokenizer(" " + next(answers), return_tensors="pt", add_special_tokens=False)["input_ids"]
        return torch.cat([input_ids, said], 1)

    monkeypatch.setattr(model, "generate", knows)
    assert retrieval(model, tokenizer, Cache("bfp4"), 60, 2).value == 1.0


def items(count, seed=0):
    choice = kv_studies.random.Random(seed)
    return [(choice.random(), choice.randrange(1 << 30)) for _ in range(count)]
