"""Attention that scales can be learned through, and attention with everything rounded: near the exact ones."""

import pytest
import torch
from tests.nn.kv_models import close, make
from tests.nn.test_kv_emulation import tensors
from torch.nn.functional import scaled_dot_product_attention as exact

from tilepress.formats import BFP
from tilepress.formats.kv import parse_kv
from tilepress.nn.attention_rounding import rounded_attention
from tilepress.nn.kv_emulation import emulate
from tilepress.nn.kv_smoothing import Scaling, scaled_attention

ONES = torch.ones(2, 64)


def scaling(name="bfp4", scales=ONES, **options):
    return Scaling(scales, parse_kv(name).bfp, **options)


@pytest.mark.parametrize("options", [{}, {"smoothed_channels": 4}, {"window": 40}])
@pytest.mark.parametrize("name", ["bfp4", "bfp:m4"])
def test_it_is_the_emulation_but_for_the_open_group(name, options):
    arrays, window = tensors(160), options.get("window")
    actual = scaled_attention(
        *arrays, scaling(name, smoothed_channels=options.get("smoothed_channels", 0)), 0.125, window
    )
    expected = emulate(*arrays, parse_kv(name).bfp, 0.125, **options)
    full = slice(31, None, 32)  # queries that close a group of values
    assert close(actual[:, :, full], expected[:, :, full], 0.01) and not close(actual, expected, 0.001)


def test_a_common_power_of_two_changes_nothing_and_other_scales_do():
    arrays = tensors(96)
    plain = scaled_attention(*arrays, scaling(), 0.125)
    assert torch.equal(scaled_attention(*arrays, scaling(scales=4 * ONES), 0.125), plain)
    uneven = torch.linspace(0.5, 2, 64).expand(2, 64)
    assert not torch.equal(scaled_attention(*arrays, scaling(scales=uneven), 0.125), plain)
    whole = scaled_attention(*arrays, scaling("bfp8", uneven), 0.125)
    assert close(whole, scaled_attention(*arrays, scaling("bfp8"), 0.125), 0.03)


def test_scales_have_a_gradient():
    scales = ONES.clone().requires_grad_()
    scaled_attention(*tensors(64), scaling(scales=scales), 0.125).square().sum().backward()
    assert scales.grad.abs().amin() > 0


def test_keys_before_rotation():
    rotary, (queries, keys, values) = make().model.rotary_emb, tensors(64, channels=32)
    expected = exact(queries, keys, values, is_causal=True, enable_gqa=True, scale=0.125)
    before = scaling("bfp8", torch.ones(2, 32), rotary=rotary)
    assert close(scaled_attention(queries, keys, values, before, 0.125), expected, 0.05)
    scales = torch.rand(2, 32).add(0.5)  # of every channel its own
    assert close(scaled_attention(queries, keys, values, scaling("bfp8", scales, rotary=rotary), 0.125), expected, 0.05)


@pytest.mark.parametrize("tokens", [70, 600])
def test_everything_rounded(tokens):
    arrays = [x[:1] for x in tensors(tokens)]
    expected = exact(*arrays, is_causal=True, enable_gqa=True, scale=0.125)
    errors = [
        float((rounded_attention(*arrays, BFP(group, bits), 0.125) - expected).norm() / expected.norm())
        for group, bits in ((32, 13), (32, 8), (32, 5), (128, 5))
    ]
    assert errors == sorted(errors) and errors[0] < 0.002 < errors[2]


def test_windows_are_kept():
    queries, keys, values = tensors(90)
    token = torch.arange(90)
    mask = (token <= token[:, None]) & (token > token[:, None] - 20)
    expected = exact(queries, keys, values, attn_mask=mask, enable_gqa=True, scale=0.125)
    assert close(rounded_attention(queries, keys, values, BFP(32, 13), 0.125, 20), expected, 0.002)
