"""The specification of attention over block floating point, against plain attention and the format's own reference."""

import math

import pytest
import torch

from tilepress.formats.bfp import BFP, decode, demote, encode
from tilepress.formats.kv import KvBfp
from tilepress.kernels import attention_reference as reference

BFP4 = KvBfp(4, 8, initial=32, local=64)
BFP8 = KvBfp(8, 8)


def tensors(tokens, channels=64, rows=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, channels, generator=generator) for n in (rows, tokens, tokens)]


def plain(query, keys, values, scaling):
    return torch.softmax(query.double() @ keys.double().T * scaling, -1) @ values.double()


def test_eight_bits_are_near_plain_attention():
    query, keys, values = tensors(300)
    actual = reference.attend(query, keys, values, BFP8, 0.125)
    assert (actual - plain(query, keys, values, 0.125)).abs().max() < 0.02


@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 200])
def test_every_part_is_rounded_as_said(tokens):
    """The same by decoded floats: K along channels, V along tokens, each token cut to its bits."""
    query, keys, values = tensors(tokens)
    wide = torch.tensor([t < 32 or t >= tokens - 64 for t in range(tokens)])[:, None]
    k8, v8 = encode(keys, BFP(32, 8)), encode(values, BFP(32, 8), axis=0)
    k = torch.where(wide, decode(k8), decode(demote(k8, 4))).double()
    v = torch.where(wide, decode(v8), decode(demote(v8, 4))).double()
    scores = decode(encode(query, BFP(32, 8))).double() @ k.T * 0.125
    weights = decode(encode(torch.exp(scores - scores.amax(-1, keepdim=True)).float(), BFP(32, 8))).double()
    expected = weights @ v / weights.sum(-1, keepdim=True)
    actual = reference.attend(query, keys, values, BFP4, 0.125)
    # A weight on the edge between two integers may fall to either side.
    assert (actual - expected).abs().max() <= 2.0**-6 * v.abs().max() / 32 + 1e-5


def test_tokens_before_the_first_are_not_seen():
    query, keys, values = tensors(70)
    actual = reference.attend(query, keys, values, BFP8, 0.125, first=64)
    assert (actual - plain(query, keys[64:], values[64:], 0.125)).abs().max() < 0.03


def test_offsets_change_no_scores_but_what_rounding_loses():
    query, keys, values = tensors(100)
    keys[:, 5] += 40.0
    without = reference.attend(query, keys, values, KvBfp(4, 4), 0.125)
    with_offsets = reference.attend(query, keys, values, KvBfp(4, 4), 0.125, smoothed_channels=4)
    exact = plain(query, keys, values, 0.125)
    assert (with_offsets - exact).norm() < 0.9 * (without - exact).norm()


def test_offsets_are_half_the_extremes_of_the_largest_channels():
    keys = torch.zeros(40, 8)
    keys[3, 1], keys[5, 1], keys[31, 6], keys[32, 2], keys[0, 4] = -8.0, 7.0, 3.0, 99.0, 2.5
    assert reference.key_offsets(keys, 2).tolist() == [0, -4.0, 0, 0, 0, 0, 1.5, 0]
    assert not reference.key_offsets(keys, 0).any()


def test_bits_follow_the_tokens():
    assert reference.bits_of_tokens(KvBfp(4, 8, 2, 3), 9).tolist() == [8, 8, 4, 4, 4, 4, 8, 8, 8]
    assert reference.bits_of_tokens(BFP8, 3).tolist() == [8, 8, 8]


def test_exponential():
    x = torch.cat([torch.linspace(-39.9, 0, 20001), torch.tensor([-0.0, -1e-30])])
    exact = torch.tensor([math.exp(v) for v in x.tolist()], dtype=torch.float64)
    actual = reference.exponential(x)
    assert ((actual.double() - exact).abs() / exact).max() < 2.0**-22
    assert actual[-2:].tolist() == [1.0, 1.0]
    assert 0 < reference.exponential(torch.tensor([-1e30, -torch.inf])).max() < 1e-17
