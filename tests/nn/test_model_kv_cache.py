"""Packed caches in models of transformers: their numbers, padding, memory, and what is refused."""

import pytest
import torch
from tests.nn.kv_models import FAMILIES, PACKED_FORMATS, SIZES, close, logits, make, prompt
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import tilepress
from tilepress.formats import FormatError
from tilepress.nn.kv_emulation import emulate_kv


@pytest.mark.isas
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_near_those_of_the_plain_cache(family):
    model, tokens = make(family), prompt(90)
    plain = logits(model, tokens, DynamicCache(config=model.config), sizes=[40, 1, 30, 19])
    eight = logits(model, tokens, tilepress.kv_cache(model, "bfp8"), sizes=[40, 1, 30, 19])
    four = logits(model, tokens, tilepress.kv_cache(model, "bfp:m4"), sizes=[40, 1, 30, 19])
    assert close(eight, plain, 0.03)
    assert close(four, plain, 0.3) and not close(four, plain, 0.05)


@pytest.mark.parametrize("name", ["bfp8", "sparse:k0,v1", "bf16"])
@pytest.mark.parametrize("family", ["soft-capped", "sinks"])
def test_what_some_models_do_with_scores_is_done(family, name):
    """By packed caches, by emulation, and by the attention "tilepress" without a packed cache: as transformers' eager
    attention, which a model without caps or sinks differs from."""
    model, tokens = make(family), prompt(60)
    eager = logits(model, tokens, DynamicCache(config=model.config))
    assert close(logits(model, tokens, tilepress.kv_cache(model, name), sizes=[40, 1, 19]), eager, 0.04)
    tilepress.kv_cache(model, "bfp8")
    assert close(logits(model, tokens, DynamicCache(config=model.config)), eager, 1e-5)
    emulate_kv(model, name)
    assert close(logits(model, tokens, None), eager, 0.04)
    emulate_kv(model, "none")
    for layer in model.model.layers:
        layer.self_attn.attn_logit_softcapping = None
        if family == "sinks":
            layer.self_attn.sinks.data.fill_(-100.0)
    model.set_attn_implementation("eager")
    assert not close(logits(model, tokens, DynamicCache(config=model.config)), eager, 0.08)


@pytest.mark.isas
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_at_once_and_token_by_token_are_the_same(family):
    """Up to what torch's own matrix products differ by, and the roundings that tips over."""
    model, tokens = make(family), prompt(80)
    whole = logits(model, tokens, tilepress.kv_cache(model, "bfp4", "online"))
    steps = logits(model, tokens, tilepress.kv_cache(model, "bfp4", "online"), sizes=1)
    assert close(steps, whole, 0.01)


@pytest.mark.isas
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["llama", "sliding"])
def test_padding_changes_nothing(family, side):
    if family == "sliding" and side == "right":
        pytest.skip("windows count padding between tokens, which is not stored")
    model, tokens, more = make(family), prompt(50), prompt(6, seed=1)
    alone = logits(model, torch.cat([tokens, more], 1), tilepress.kv_cache(model, "bfp4"), sizes=[50, 6])
    mask = torch.ones(2, 76, dtype=torch.long)
    padded = prompt(76, batch=2, seed=2)
    place = slice(20, 70) if side == "left" else slice(0, 50)
    pads = slice(0, 20) if side == "left" else slice(50, 70)
    mask[1, pads], padded[1, pads], padded[1, place], padded[1, 70:] = 0, 0, tokens, more
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = tilepress.kv_cache(model, "bfp4")
    with torch.no_grad():
        model(padded[:, :70], attention_mask=mask[:, :70], position_ids=positions[:, :70], past_key_values=cache)
        last = model(padded[:, 70:], attention_mask=mask, position_ids=positions[:, 70:], past_key_values=cache).logits
    assert cache.layers[0].store.lengths == [76, 56]
    assert close(last[1], alone[0, 50:], 0.01)
    assert cache.get_seq_length() == 76


def test_memory_is_a_third_of_halves():
    model, tokens = make(), prompt(300)
    packed, halves = tilepress.kv_cache(model, "bfp4"), tilepress.kv_cache(model, "fp16")
    for cache in (packed, halves):
        logits(model, tokens, cache)
    assert halves.nbytes == 2 * 2 * 2 * 2 * 32 * 300
    assert packed.nbytes < halves.nbytes / 1.9  # 32 + 64 tokens of 300 are wide, and a group is open
    thin = tilepress.kv_cache(model, "sparse:k50,v70")
    logits(model, tokens, thin)
    assert thin.nbytes < halves.nbytes / 1.5  # a block is open, and one to spare


SPARSE = ["sparse:k30,v50", "bf16+sparse:k10,v10", "bfp8+sparse:k10,v10"]


@pytest.mark.parametrize("name", ["fp16", "bf16", *SPARSE])
def test_halves_and_pruned_ones(name):
    model, tokens = make(), prompt(60)
    plain = logits(model, tokens, DynamicCache(config=model.config))
    actual = logits(model, tokens, tilepress.kv_cache(model, name), sizes=[50, 1, 9])
    assert close(actual, plain, 0.5 if "sparse" in name else 0.02)
    assert not torch.equal(actual, plain)
    options = {"max_new_tokens": 5, "num_beams": 2, "do_sample": False}
    assert model.generate(tokens, past_key_values=tilepress.kv_cache(model, name), **options).shape == (1, 65)


def test_what_cannot_be_is_said(tmp_path):
    model = make()
    with pytest.raises(FormatError, match="is no cache format"):
        tilepress.kv_cache(model, "bfp5")
    with pytest.raises(ValueError, match="hybrid smoothing is folded into weights"):
        tilepress.kv_cache(model, "bfp4", "hybrid")
    for name in ("fp16", "sparse:k30,v50"):
        with pytest.raises(FormatError, match=f"smoothing is of keys in block floating point, and {name} has none"):
            tilepress.kv_cache(model, name, "online")
        with pytest.raises(FormatError, match="leave it out"):
            emulate_kv(model, name, "online")
    narrow = LlamaForCausalLM(LlamaConfig(**{**SIZES, "head_dim": 16}))
    with pytest.raises(FormatError, match="heads of 16 channels cannot be cut in groups of 32: take fp16"):
        tilepress.kv_cache(narrow, "bfp4")
    with pytest.raises(FormatError, match="heads of 24 channels cannot be cut in lanes of 16"):
        tilepress.kv_cache(LlamaForCausalLM(LlamaConfig(**{**SIZES, "head_dim": 24})), "sparse:k30,v50")
    with pytest.raises(FormatError, match="keys of 40 channels cannot be rotated"):
        emulate_kv(LlamaForCausalLM(LlamaConfig(**{**SIZES, "head_dim": 40})), "bfp:m4:g16+rotate")
    cache = tilepress.kv_cache(model, "bfp4")
    logits(model, prompt(), cache)
    other = make("multi-query")
    tilepress.kv_cache(other, "bfp4")
    with pytest.raises(ValueError, match="another model's cache or another batch"):
        logits(other, prompt(), cache)
    with pytest.raises(ValueError, match="another model's cache or another batch"):
        logits(model, prompt(batch=2), cache)
    model.set_attn_implementation("sdpa")
    with pytest.raises(AttributeError, match=r"make the cache by tilepress\.kv_cache"):
        logits(model, prompt(), cache)


@torch.no_grad()
@pytest.mark.parametrize("name", PACKED_FORMATS)
def test_masks_that_hide_what_was_seen_are_refused(name):
    model = make()
    cache = tilepress.kv_cache(model, name)
    logits(model, prompt(40), cache)
    mask = torch.ones(1, 41, dtype=torch.long)
    mask[0, 5] = 0
    with pytest.raises(ValueError, match="do not mix sides of padding"):
        model(prompt(1), attention_mask=mask, past_key_values=cache)


@torch.no_grad()
@pytest.mark.parametrize("name", PACKED_FORMATS)
def test_padding_that_changes_sides_is_refused(name):
    """A batch padded on the left, then the same tokens as if they were padded on the right."""
    model, tokens = make(), prompt(20, batch=2)
    left, right = torch.ones(2, 24, dtype=torch.long), torch.ones(2, 24, dtype=torch.long)
    left[1, :6], right[1, 14:20] = 0, 0
    cache = tilepress.kv_cache(model, name)
    model(tokens, attention_mask=left[:, :20], past_key_values=cache)
    with pytest.raises(ValueError, match="do not mix sides of padding"):
        model(prompt(4, batch=2), attention_mask=right, past_key_values=cache)
