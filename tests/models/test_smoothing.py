"""Scales of keys: learned, folded into weights, and exact."""

import copy
from functools import lru_cache

import pytest
import torch
from transformers import DynamicCache, Phi3Config, Phi3ForCausalLM, Qwen3Config, Qwen3ForCausalLM

import tilepress
import tilepress.formats
from tests.models import tiny
from tests.nn.kv_models import SIZES, close, logits, make
from tilepress.evaluate.kv_studies import Cache, judge
from tilepress.models import smoothing
from tilepress.models.recipe import RecipeError, read_recipe
from tilepress.models.smoothing import SmoothingError, find_attention, fold, smooth_model
from tilepress.nn.kv_emulation import emulate_kv

FORMAT = "bfp:m3"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(smoothing, "STEPS", 6)


def uneven(family="llama"):
    """A model some channels of whose keys are much larger than the rest."""
    model = make(family)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.k_proj.weight[3::32] *= 20
    return model


def smoothed(family="llama", how="offline"):
    return copy.deepcopy(learned(family, how))


@lru_cache
def learned(family, how):
    return smooth(uneven(family), how)


def smooth(model, how="offline"):
    smooth_model(model, tiny.windows(2, 48), FORMAT, how)
    return model


def scales(model, before):
    """[layers, heads, channels], from the weights."""
    ratios = []
    for layer, old in zip(model.model.layers, before.model.layers, strict=True):
        ratio = layer.self_attn.k_proj.weight / old.self_attn.k_proj.weight
        ratios.append(ratio.median(1).values.view(-1, 32))
    return torch.stack(ratios).detach()


@pytest.mark.parametrize("family", ["llama", "multi-query", "multi-head", "sliding", "mixed"])
def test_the_model_says_what_it_said(family):
    model, tokens = smoothed(family), tiny.windows(2, 90)
    with torch.no_grad():
        assert close(model(tokens).logits, uneven(family)(tokens).logits, 1e-4)
    assert model.config._attn_implementation == "sdpa"
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("how", ["offline", "hybrid"])
def test_rotated_pairs_share_a_scale_and_large_channels_shrink(how):
    learned = scales(smoothed(how=how), uneven())
    assert torch.allclose(learned[..., :16], learned[..., 16:], rtol=1e-4)
    assert (learned[..., 3] < learned.median(-1).values).all() and learned.std() > 0.01


def test_scales_help_on_other_text():
    plain, tokens = uneven(), tiny.windows(1, 200)[0]
    settings = [Cache(FORMAT), Cache(FORMAT, "offline")]
    costs = judge(plain, tokens, settings, smoothed={settings[1]: smoothed()})
    assert costs[settings[1]].kl.value < 0.9 * costs[settings[0]].kl.value


def test_no_scales_are_worse_than_ones(monkeypatch):
    """A block keeps the best that it has seen, whatever learning does."""
    monkeypatch.setattr(smoothing, "LEARNING_RATE", 50.0)
    monkeypatch.setattr(smoothing, "POWERS", ())
    assert torch.equal(scales(smooth(uneven()), uneven()), torch.ones(2, 2, 32))


@pytest.mark.parametrize("name", ["bfp4", "bfp8+sparse:k30,v50"])
@pytest.mark.parametrize("how", ["none", "online", "offline", "hybrid"])
def test_emulation_is_the_packed_cache_token_by_token(how, name):
    model = smoothed(how=how) if how in ("offline", "hybrid") else uneven()
    tokens, at_run_time = tiny.windows(1, 80), "online" if how in ("online", "hybrid") else "none"
    stepped = logits(model, tokens, tilepress.kv_cache(model, name, at_run_time), sizes=1)
    emulate_kv(model, name, at_run_time)
    with torch.no_grad():
        assert close(model(tokens).logits, stepped, 0.01)


def test_folding_is_undone_by_its_inverse():
    model = make()
    before, attention = copy.deepcopy(model), find_attention(model.model.layers[0], "0")
    some = torch.rand(2, 16).add(0.5).repeat(1, 2)
    fold(attention, some)
    assert torch.allclose(attention.k_proj.weight[5], before.model.layers[0].self_attn.k_proj.weight[5] * some[0, 5])
    fold(attention, 1 / some)
    assert close(attention.q_proj.weight, before.model.layers[0].self_attn.q_proj.weight, 1e-6)


def test_biases_are_scaled_too():
    model = make("mixed")
    bias = model.model.layers[0].self_attn.k_proj.bias.detach().uniform_(1, 2).clone()
    fold(model.model.layers[0].self_attn, torch.full((2, 32), 2.0))
    assert torch.equal(model.model.layers[0].self_attn.k_proj.bias, 2 * bias)


@pytest.mark.parametrize("how", ["offline", "hybrid"])
def test_a_compressed_model_carries_its_scales(how):
    recipe = {"weights": {"format": "int8:row"}, "kv_cache": {"format": FORMAT, "smoothing": how}}
    model, plain = uneven(), uneven()
    tilepress.compress(model, recipe, windows=tiny.windows(2, 48))
    tilepress.compress(plain, {"weights": {"format": "int8:row"}, "kv_cache": {"format": FORMAT}})
    tokens = tiny.windows(1, 60)
    cache = model.generate(tokens, max_new_tokens=2, return_dict_in_generate=True).past_key_values
    assert cache.smoothing == ("online" if how == "hybrid" else "none")
    expected = uneven()(tokens).logits
    lost, lost_plain = ((run(one, tokens) - expected).norm() for one in (model, plain))
    assert lost < lost_plain


@torch.no_grad()
def run(model, tokens):
    recipe = read_recipe(model.config.quantization_config.recipe)
    at_run_time = "online" if recipe.kv_cache.smoothing == "hybrid" else "none"
    return model(tokens, past_key_values=tilepress.kv_cache(model, FORMAT, at_run_time)).logits


def test_models_without_such_weights_are_refused_before_any_work():
    fused = Phi3ForCausalLM(Phi3Config(**SIZES))
    with pytest.raises(SmoothingError, match="has no linear q_proj of its own to fold scales into: take rotated keys"):
        smooth_model(fused, tiny.windows(), "bfp4")
    normalised = Qwen3ForCausalLM(Qwen3Config(**SIZES))
    recipe = {"kv_cache": {"format": "bfp4", "smoothing": "offline"}}
    with pytest.raises(SmoothingError, match=r"normalises queries or keys \(q_norm\), which undoes scales"):
        tilepress.compress(normalised, recipe, windows=tiny.windows())
    with pytest.raises(SmoothingError, match="no model of transformers with decoder blocks"):
        smooth_model(torch.nn.Linear(2, 2), tiny.windows(), "bfp4")
    with pytest.raises(SmoothingError, match=r"not rotated, and the format is bfp4\+rotate: leave rotate out"):
        smooth_model(uneven(), tiny.windows(), "bfp4+rotate")
    with pytest.raises(RecipeError, match="kv_cache: offline smoothing is for keys that are not rotated"):
        read_recipe({"kv_cache": {"format": "bfp4n+rotate", "smoothing": "offline"}})


@pytest.mark.parametrize("family", ["qk-norm", "fused"])
def test_rotated_keys_where_scales_are_refused(family):
    model = make(family) if family == "qk-norm" else Phi3ForCausalLM(Phi3Config(**SIZES)).eval()
    tokens = tiny.windows(1, 90)
    plain = logits(model, tokens, DynamicCache(config=model.config))
    errors = [
        (logits(model, tokens, tilepress.kv_cache(model, name)) - plain).norm()
        for name in ("bfp:m4", "bfp:m4:near+rotate")
    ]
    assert errors[1] < 0.7 * errors[0]


def test_keys_that_are_rotated_otherwise_are_noticed(monkeypatch):
    monkeypatch.setattr(smoothing, "_rotated_channels", lambda *_: 0)
    model = uneven()
    before = copy.deepcopy(model)
    with pytest.raises(SmoothingError, match="it rotates them otherwise than Llama: take rotated keys"):
        smooth(model)
    assert close(model.model.layers[0].self_attn.k_proj.weight, before.model.layers[0].self_attn.k_proj.weight, 1e-6)


def test_a_cache_alone_cannot_be_smoothed_offline():
    for how in ("offline", "hybrid"):
        with pytest.raises(tilepress.formats.FormatError, match=f"{how} smoothing is folded into weights: compress"):
            tilepress.kv_cache(make(), "bfp4", how)
    with pytest.raises(tilepress.formats.FormatError, match="smoothing of a cache is none or online, not some"):
        tilepress.kv_cache(make(), "bfp4", "some")
    with pytest.raises(SmoothingError, match="smoothing is for caches in block floating point, and the format is fp16"):
        smooth_model(make(), tiny.windows(), "fp16")
