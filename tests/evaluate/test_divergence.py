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
    measure = divergence(noisy_model, any_model, tokens, windowing)
    assert measure.kl.value == pytest.approx(expected.mean(), abs=1e-6)
    assert measure.kl.error == pytest.approx(expected.std(ddof=1) / len(expected) ** 0.5, abs=1e-6)
    for percent, value in measure.kl_percentiles.items():
        assert value == pytest.approx(np.percentile(expected, percent), abs=2e-6, rel=2e-6)


def test_same_top_is_the_share_of_equal_greedy_choices(model, tokens):
    other_model = noisy(model)
    windows = list(cut(len(tokens), 16, 16))
    contexts = [context for context, _ in reference.contexts(tokens.tolist(), windows)]
    choices = [[reference.next_logits(one, context).argmax() for context in contexts] for one in (model, other_model)]
    expected = np.mean([a == b for a, b in zip(*choices, strict=True)])
    same_top = divergence(model, other_model, tokens, Windowing(window=16)).same_top
    assert same_top.value == pytest.approx(expected, abs=1e-12) and 0 < same_top.value < 1
    count = len(contexts)
    assert same_top.error == pytest.approx((expected * (1 - expected) / (count - 1)) ** 0.5, rel=1e-9)


def test_a_model_does_not_diverge_from_itself(model, tokens):
    measure = divergence(model, copy.deepcopy(model), tokens, Windowing(window=16, batch=2))
    assert measure.kl.value == measure.kl.error == 0 and set(measure.kl_percentiles.values()) == {0}
    assert measure.same_top.value == 1 and measure.ratio.value == 1 and measure.ratio.error == 0


def test_the_perplexities_are_those_taken_alone(model, other_model, tokens):
    windowing = Windowing(window=16, stride=8)
    measure = divergence(model, other_model, tokens, windowing)
    assert measure.model.loss.value == pytest.approx(perplexity(model, tokens, windowing).loss.value, abs=1e-12)
    assert measure.reference.loss.value == pytest.approx(
        perplexity(other_model, tokens, windowing).loss.value, abs=1e-12
    )
    assert measure.ratio.value == pytest.approx(measure.model.perplexity.value / measure.reference.perplexity.value)
    assert measure.ratio.error > 0


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
