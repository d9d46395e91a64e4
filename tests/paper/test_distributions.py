"""Attention by place and magnitudes by channel, on tensors small enough to work out by hand."""

import pytest
import torch

from tilepress.formats import BFP
from tilepress.models.study_model import load_study_model
from tilepress.paper.studies.distributions import (
    attended,
    channel_magnitudes,
    keys_and_values,
    mean_attention,
    outliers,
    share_of_zeros,
    variance_between_channels,
    without_offsets,
)


def test_attention_to_the_first_and_the_last():
    attention = torch.zeros(1, 2, 4, 4)
    attention[0, 0, 2] = torch.tensor([0.7, 0.1, 0.2, 0.0])
    attention[0, 0, 3] = torch.tensor([0.5, 0.1, 0.1, 0.3])
    attention[0, 1, 2, :3] = 1 / 3
    attention[0, 1, 3] = 0.25
    shares = attended(attention, 1)
    assert shares.initial[0].tolist() == pytest.approx([0.6, (1 / 3 + 0.25) / 2])
    assert shares.local[0].tolist() == pytest.approx([0.25, (1 / 3 + 0.25) / 2])
    assert shares.between[0].tolist() == pytest.approx([0.1, (1 / 3 + 0.25) / 2])  # of one token, then of two
    assert shares.even == pytest.approx((1 / 3 + 1 / 4) / 2)
    with pytest.raises(ValueError, match="the first and the last 2 tokens need sentences of 8 and more, not 4"):
        attended(attention, 2)


def test_magnitudes_of_channels():
    one = torch.tensor([[1.0, -2.0, 8.0], [-1.0, 4.0, 8.0]])[
        None, None, None
    ]  # [layer, window, head, tokens, channels]
    magnitudes = channel_magnitudes(one)
    assert magnitudes.tolist() == [[[1, 3, 8]]] and outliers(magnitudes).tolist() == [[pytest.approx(8 / 3)]]
    # Means 1, 3, 8 vary by 26/3 about 4; all six by 9 about 4.
    assert variance_between_channels(one).tolist() == [[pytest.approx((26 / 3) / 9)]]


def test_offsets_are_half_of_the_extreme_of_the_largest_channels():
    keys = torch.tensor([[1.0, -6.0], [2.0, -8.0]])[None, None, None]
    assert without_offsets(keys, 1)[0, 0, 0].tolist() == [[1, -2], [2, -4]]
    assert without_offsets(keys, 0).equal(keys)


def test_values_that_become_zero():
    group = torch.zeros(16)
    group[:4] = torch.tensor([8.0, 1.0, 0.5, -0.25])  # the last bit of four is 1, and 0.5 and 0.25 are truncated
    assert share_of_zeros(group[None], BFP(16, 4)) == 0.5


def test_of_a_model(model):
    subject = load_study_model(model["model"]).model
    windows = torch.arange(60).view(3, 20)
    attention = mean_attention(subject, windows)
    assert attention.shape[0] == 2 and attention.shape[2:] == (20, 20)
    assert torch.allclose(attention.sum(-1), torch.ones(()), atol=1e-5) and attention.triu(1).abs().max() == 0
    each = torch.stack([mean_attention(subject, row[None]) for row in windows]).mean(0)
    assert torch.allclose(attention, each, atol=1e-6)
    keys, values = keys_and_values(subject, windows)
    assert keys.shape == values.shape and keys.shape[:2] == (2, 3) and keys.shape[3] == 20
