"""Studies of caches, on small random models."""

import copy

import pytest
import torch

from tests.nn.kv_models import make, prompt
from tilepress.evaluate import Windowing
from tilepress.evaluate.kv_studies import BeforeRotation, Cache, Everywhere, judge
from tilepress.formats import BFP


def test_fewer_bits_are_farther_from_halves():
    model, tokens = make(), prompt(200)[0]
    caches = [Cache("fp16"), Cache("bfp8"), Cache("bfp:m4"), Cache("bfp:m2"), Cache("bfp:m4", "online")]
    by_setting = judge(model, tokens, caches, Windowing(window=100))
    distances = [by_setting[cache].kl.value for cache in caches[:4]]
    assert distances[0] == 0 and distances == sorted(distances) and distances[1] < distances[3] / 10
    assert by_setting[caches[4]].kl.value != by_setting[caches[2]].kl.value
    assert model.config._attn_implementation == "sdpa"


def test_settings_do_not_outlast_their_study():
    model, tokens = make(), prompt(60)[0]
    settings = [Cache("fp16", activations="bfp:g32:m4"), Everywhere(BFP(32, 4)), BeforeRotation("bfp:m4")]
    with torch.no_grad():
        before = model(tokens[None]).logits
        by_setting = judge(model, tokens, settings, Windowing(window=60))
        assert torch.equal(model(tokens[None]).logits, before)
    assert all(by_setting[setting].kl.value > 1e-5 for setting in settings)
    assert by_setting[settings[1]].kl.value > by_setting[settings[0]].kl.value


def test_smoothing_that_is_folded_wants_a_model_that_has_it():
    model, tokens = make(), prompt(60)[0]
    with pytest.raises(ValueError, match="offline smoothing is folded into weights, and no model was given"):
        judge(model, tokens, [Cache("bfp4", "offline")])
    twin = copy.deepcopy(model)
    settings = [Cache("bfp4"), Cache("bfp4", "offline")]
    by_setting = judge(model, tokens, settings, smoothed={settings[1]: twin})
    assert by_setting[settings[0]] == by_setting[settings[1]]  # nothing was folded
    with pytest.raises(ValueError, match="activations fp or bfp:gN:mN, not"):
        judge(model, tokens, [Cache("bfp4", activations="int8")])


def test_settings_in_words():
    named = {
        "bfp4": Cache("bfp4"),
        "bfp4, hybrid": Cache("bfp4", "hybrid"),
        "bfp4, 3 offsets, bfp:g32:m8": Cache("bfp4", "none", "bfp:g32:m8", 3),
    }
    assert {str(cache) for cache in named.values()} == set(named)
