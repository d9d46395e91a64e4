"""Whole sequences at once: the numbers of the packed cache, token by token."""

import pytest
import torch
from tests.nn.kv_models import close, logits, make, prompt

import tilepress
from tilepress.formats.kv import parse_kv
from tilepress.kernels import attention_reference as reference
from tilepress.kernels.kv_store import BfpKvStore, kv_store
from tilepress.nn.kv_emulation import Emulation, emulate, emulate_kv, emulate_sparse, emulated_attention, vectorised


def tensors(tokens, heads=2, rows=2, channels=64):
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, heads * rows, tokens, channels, generator=generator)
    keys, values = (torch.randn(2, heads, tokens, channels, generator=generator) for _ in range(2))
    values *= torch.exp2(torch.randint(-6, 6, (tokens, 1), generator=generator).float())
    keys[..., 5] += 12.0
    return queries, keys, values


@pytest.mark.parametrize("options", [{}, {"smoothed_channels": 4}, {"window": 50}])
@pytest.mark.parametrize(
    "name",
    [
        "bfp4",
        "bfp8",
        "bfp:m4",
        "bfp:m2:hi6:initial7:local5",
        "bfp4+sparse:k30,v50",
        "bfp4n+rotate",
        "bfp:m3:near+rotate",
        "bfp4n+rotate+sparse:k30,v50",
    ],
)
def test_every_bit_is_the_packed_caches(name, options):
    format, arrays = parse_kv(name), tensors(300)
    expected, emulation = by_tokens(format, arrays, options), Emulation(format, options.get("smoothed_channels", 0))
    for compute in (vectorised, emulated_attention):
        assert torch.equal(compute(*arrays, emulation, 0.125, options.get("window")), expected)


def by_tokens(format, arrays, options):
    stepped = kv_store(format, 2, 2, 64, **options)
    return torch.cat([stepped.attend(*(x[:, :, t : t + 1] for x in arrays), 0.125) for t in range(300)], 2)


@pytest.mark.parametrize("options", [{}, {"window": 50}, {"smoothed_channels": 4}])
def test_beyond_a_segment(options):
    arrays = [x[:1, :1] for x in tensors(2100, channels=32)]
    format = parse_kv("bfp4").bfp
    expected = BfpKvStore(format, 1, 1, 32, **options).attend(*arrays, 0.1)
    assert torch.equal(emulate(*arrays, format, 0.1, **options), expected)


@pytest.mark.parametrize(("name", "channels"), [("bfp:m4:g16", 64), ("bfp4", 48), ("sparse:k30,v50", 40)])
def test_heads_that_no_packed_cache_holds(name, channels):
    arrays, emulation = tensors(50, channels=channels), Emulation(parse_kv(name))
    actual = emulated_attention(*arrays, emulation, 0.125)
    assert torch.equal(actual, vectorised(*arrays, emulation, 0.125))


@pytest.mark.parametrize("group", [16, 64])
def test_other_groups(group):
    queries, keys, values = tensors(100, heads=1, rows=1)
    format = parse_kv(f"bfp:m4:hi8:initial32:local64:g{group}").bfp
    actual = emulate(queries, keys, values, format, 0.125)
    for t in (0, 40, 99):
        expected = reference.attend(queries[0, :, t], keys[0, 0, : t + 1], values[0, 0, : t + 1], format, 0.125)
        assert torch.equal(actual[0, :, t], expected)


BFP = [("bfp4", "online"), ("bfp8", "none"), ("bfp:m3:hi6:initial7:local5", "none"), ("bfp4+sparse:k30,v50", "online")]


@pytest.mark.parametrize("family", ["llama", "sliding", "mixed"])
@pytest.mark.parametrize(("name", "smoothing"), [*BFP, ("sparse:k30,v50", "none"), ("bf16+sparse:k50,v0", "none")])
def test_models_give_the_same_logits_as_with_the_cache(family, name, smoothing):
    model, tokens = make(family), prompt(90)
    cached = logits(model, tokens, tilepress.kv_cache(model, name, smoothing), sizes=1)
    emulate_kv(model, name, smoothing)
    with torch.no_grad():
        assert close(model(tokens).logits, cached, 0.01)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_padding_on_the_right_changes_nothing(name):
    model, tokens = make(), prompt(60, batch=2)
    mask = torch.ones_like(tokens)
    mask[1, 45:] = 0
    emulate_kv(model, name)
    padded = model(tokens, attention_mask=mask).logits
    assert close(padded[1, :45], model(tokens[1:, :45]).logits[0], 1e-4)
    assert close(padded[0], model(tokens[:1]).logits[0], 1e-4)


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("name", ["sparse:k30,v50", "bf16+sparse:k70,v20"])
def test_sparse_caches_are_what_the_specification_says(name, window):
    format = parse_kv(name)
    queries, keys, values = tensors(300)
    actual = emulate_sparse(queries, keys, values, format, 0.125, window=window)
    for t in (0, 31, 32, 95, 257, 299):
        mine = queries[0, :, t].reshape(keys.shape[1], -1, keys.shape[3])
        first = max(0, t + 1 - window) if window else 0
        past = keys[0, :, : t + 1], values[0, :, : t + 1]
        expected = reference.attend_sparse(mine, *past, format, 0.125, first=first)
        assert (actual[0, :, t] - expected.flatten(0, 1)).abs().max() < 1e-5 * values.abs().max()
    stepped = by_tokens(format, (queries, keys, values), {"window": window})
    assert (actual - stepped).abs().max() < 1e-5 * values.abs().max()


@pytest.mark.parametrize("family", ["llama", "sliding", "mixed"])
def test_halves_and_an_end(family):
    model, tokens = make(family), prompt(60)
    with torch.no_grad():
        plain = model(tokens).logits
        emulate_kv(model, "sparse:k30,v50")
        pruned = model(tokens).logits
        emulate_kv(model, "fp16")
        halves = model(tokens).logits
        emulate_kv(model, "none")
        assert torch.equal(model(tokens).logits, plain)
    assert close(halves, plain, 0.01) and not torch.equal(halves, plain)
    assert not close(pruned, plain, 0.01)


@torch.no_grad()
def test_what_it_does_not_take():
    model = make()
    emulate_kv(model, "bfp4")
    seen = model(prompt(10), use_cache=True).past_key_values
    with pytest.raises(ValueError, match="emulation takes whole sequences"):
        model(prompt(1), past_key_values=seen)
    mask = torch.ones(1, 10, dtype=torch.long)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="padding on the right only"):
        model(prompt(10), attention_mask=mask)
    model.model.layers[0].self_attn.__dict__.pop("tilepress_kv")
    with pytest.raises(ValueError, match="LlamaAttention does not know how to round"):
        model(prompt(10))
