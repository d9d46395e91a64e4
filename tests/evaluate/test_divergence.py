"""Divergence in windows and batches is what comparing token by token gives."""

import copy

import numpy as np
import pytest
import torch

from tests.evaluate.tiny import tiny_model
from tilepress.evaluate import Windowing, divergence, perplexity, reference, scoring
from tilepress.evaluate.windows import cut

CASES = [
    (Windowing(window=16), 10_000),
    (Windowing(window=16, stride=5, batch=4), 10_000),
    (Windowing(window=16, stride=5, batch=4), 16 << 20),
    (Windowing(), 16 << 20),
]


def noisy(model):
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=generator)
    return model


@pytest.mark.parametrize(("windowing", "chunk_bytes"), CASES, ids=str)
def test_windows_and_batches_give_what_single_tokens_give(any_model, tokens, windowing, chunk_bytes, monkeypatch):
    noisy_model = noisy(any_model)
    monkeypatch.setattr(scoring, "CHUNK_BYTES", chunk_bytes)
    length = windowing.window or 128
    windows = list(cut(len(tokens), length, windowing.stride or length))
    expected = np.array(reference.divergences(noisy_model, any_model, tokens.tolist(), windows))
    assert expected.min() > 1e-4
    found = divergence(noisy_model, any_model, tokens, windowing)
    assert found.kl.value == pytest.approx(expected.mean(), abs=1e-6)
    assert found.kl.error == pytest.approx(expected.std(ddof=1) / len(expected) ** 0.5, abs=1e-6)
    for percent, value in found.kl_percentiles.items():
        assert value == pytest.approx(np.percentile(expected, percent), abs=2e-6, rel=2e-6)


def test_same_top_is_the_share_of_equal_greedy_choices(model, tokens):
    other_model = noisy(model)
    windows = list(cut(len(tokens), 16, 16))
    contexts = [context for context, _ in reference.contexts(tokens.tolist(), windows)]
    choices = [[reference.next_logits(one, context).argmax() for context in contexts] for one in (model, other_model)]
    expected = np.mean([a == b for a, b in zip(*choices, strict=True)])
    found = divergence(model, other_model, tokens, Windowing(window=16)).same_top
    assert found.value == pytest.approx(expected, abs=1e-12) and 0 < found.value < 1
    count = len(contexts)
    assert found.error == pytest.approx((expected * (1 - expected) / (count - 1)) ** 0.5, rel=1e-9)


def test_a_model_does_not_diverge_from_itself(model, tokens):
    found = divergence(model, copy.deepcopy(model), tokens, Windowing(window=16, batch=2))
    assert found.kl.value == found.kl.error == 0 and set(found.kl_percentiles.values()) == {0}
    assert found.same_top.value == 1 and found.ratio.value == 1 and found.ratio.error == 0


def test_the_perplexities_are_those_taken_alone(model, other_model, tokens):
    windowing = Windowing(window=16, stride=8)
    found = divergence(model, other_model, tokens, windowing)
    assert found.model.loss.value == pytest.approx(perplexity(model, tokens, windowing).loss.value, abs=1e-12)
    assert found.reference.loss.value == pytest.approx(perplexity(other_model, tokens, windowing).loss.value, abs=1e-12)
    assert found.ratio.value == pytest.approx(found.model.perplexity.value / found.reference.perplexity.value)
    assert found.ratio.error > 0


def test_a_smaller_change_diverges_less(model, tokens):
    def changed(noise):
        other = copy.deepcopy(model)
        other.lm_head.weight.data += noise * torch.randn(320, 32, generator=torch.Generator().manual_seed(1))
        return divergence(other, model, tokens, Windowing(window=16)).kl.value

    assert 0 < changed(0.01) < changed(0.1) < changed(1.0)


def test_vocabularies_of_two_sizes_are_refused(model, tokens):
    other = tiny_model()
    other.resize_token_embeddings(321)
    with pytest.raises(ValueError, match="vocabularies of 321 and 320 tokens"):
        divergence(other, model, tokens, Windowing(window=16))
