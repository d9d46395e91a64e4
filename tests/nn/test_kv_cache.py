"""Packed caches in models of transformers: their numbers, and everything that transformers does with a cache."""

import copy
from random import Random

import pytest
import torch
from tests.models.tiny import GATED
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import tilepress
from tilepress.formats import FormatError
from tilepress.nn import model_kv_cache as kv_cache_module
from tilepress.nn.kv_emulation import emulate_kv
from tilepress.nn.layer_kv_cache import LayerKvCache
from tilepress.tiles import DamagedError

SIZES = {**GATED, "head_dim": 32, "max_position_embeddings": 512, "num_hidden_layers": 2, "initializer_range": 0.1}
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "multi-query": lambda: LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_key_value_heads": 1})),
    "multi-head": lambda: LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_key_value_heads": 4})),
    "sliding": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=20)),
    "mixed": lambda: Qwen2ForCausalLM(
        Qwen2Config(**{**SIZES, "hidden_size": 128}, use_sliding_window=True, sliding_window=20, max_window_layers=1)
    ),
}


def make(family="llama"):
    torch.manual_seed(0)
    return FAMILIES[family]().eval()


def prompt(length=40, batch=1, seed=0):
    return torch.randint(3, 90, (batch, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits(model, tokens, cache, sizes=None, mask=None):
    """Logits of all tokens, given to the model in pieces."""
    out, at = [], 0
    for piece in tokens.split(sizes or tokens.shape[1], 1):
        at += piece.shape[1]
        seen = None if mask is None else mask[:, :at]
        out.append(model(piece, past_key_values=cache, attention_mask=seen).logits)
    return torch.cat(out, 1)


def close(found, wanted, tolerance):
    return (found - wanted).norm() <= tolerance * wanted.norm()


@pytest.mark.isas
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_near_those_of_the_plain_cache(family):
    model, tokens = make(family), prompt(90)
    plain = logits(model, tokens, DynamicCache(config=model.config), sizes=[40, 1, 30, 19])
    eight = logits(model, tokens, tilepress.kv_cache(model, "bfp8"), sizes=[40, 1, 30, 19])
    four = logits(model, tokens, tilepress.kv_cache(model, "bfp:m4"), sizes=[40, 1, 30, 19])
    assert close(eight, plain, 0.03)
    assert close(four, plain, 0.3) and not close(four, plain, 0.05)


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


GROWING = ["bfp4", "sparse:k30,v50", "bfp4+sparse:k30,v50"]


def recomputed(model, tokens, name, **options):
    """Text without any cache: every token from all before it, with the numbers that the cache gives."""
    emulate_kv(model, name)
    every = torch.ones_like(tokens)
    found = model.generate(tokens, attention_mask=every, use_cache=False, do_sample=False, **options)
    emulate_kv(model, "none")
    return found


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_return_sequences": 2, "num_beams": 2}])
def test_generation(name, options):
    model, tokens = make(), prompt(25, batch=2)
    options = {"max_new_tokens": 14, **options}
    plain = model.generate(tokens, do_sample=False, **options)
    wanted = recomputed(model, tokens, name, **options)
    cache = tilepress.kv_cache(model, name)
    assert torch.equal(model.generate(tokens, past_key_values=cache, do_sample=False, **options), wanted)
    assert type(cache.layers[0]) is LayerKvCache and cache.get_seq_length() == 38
    assert torch.equal(model.generate(tokens, do_sample=False, **options), plain)  # the model is what it was


@pytest.mark.parametrize("name", GROWING)
def test_generation_with_padding(name):
    model, tokens = make(), prompt(25, batch=2)
    mask = torch.ones(2, 25, dtype=torch.long)
    mask[1, :7] = 0
    options = {"max_new_tokens": 14, "do_sample": False}
    found = model.generate(tokens, attention_mask=mask, past_key_values=tilepress.kv_cache(model, name), **options)
    for row, begin in enumerate((0, 7)):
        alone = tokens[row : row + 1, begin:]
        wanted = model.generate(alone, past_key_values=tilepress.kv_cache(model, name), **options)
        assert torch.equal(found[row : row + 1, begin:], wanted)


@pytest.mark.parametrize("name", GROWING)
def test_a_talk_of_several_turns(name):
    model = make()
    cache = tilepress.kv_cache(model, name)
    talk = prompt(30)
    for turn in range(3):
        talk = torch.cat([talk, prompt(7, seed=turn)], 1)
        wanted = recomputed(model, talk, name, max_new_tokens=9)
        model.set_attn_implementation("tilepress")
        options = {"attention_mask": torch.ones_like(talk), "max_new_tokens": 9, "do_sample": False}
        talk = model.generate(talk, past_key_values=cache, **options)
        assert torch.equal(talk, wanted)
    assert cache.get_seq_length() == talk.shape[1] - 1


@pytest.mark.parametrize("family", ["llama", "sliding"])
@pytest.mark.parametrize("name", ["bfp8", "sparse:k30,v50", "bfp8+sparse:k30,v50"])
def test_a_cropped_cache_goes_on_from_where_it_was_cut(family, name):
    """Where nothing has been truncated or left out since."""
    model, tokens = make(family), prompt(60)
    cut, fresh = (tilepress.kv_cache(model, name) for _ in range(2))
    logits(model, tokens, cut)
    cut.crop(-9)
    assert cut.get_seq_length() == 51
    logits(model, tokens[:, :51], fresh)
    assert close(logits(model, prompt(5, seed=3), cut), logits(model, prompt(5, seed=3), fresh), 0.01)


@pytest.mark.parametrize("name", ["bfp8", "sparse:k0,v10"])
def test_assisted_decoding_crops_by_itself(name):
    model, helper, tokens = make(), make("multi-query"), prompt(25)
    wanted = recomputed(model, tokens, name, max_new_tokens=10)
    cache = tilepress.kv_cache(model, name)
    options = {"max_new_tokens": 10, "do_sample": False, "assistant_model": helper}
    assert torch.equal(model.generate(tokens, past_key_values=cache, **options), wanted)


def test_copies_go_their_own_ways():
    model, tokens = make(), prompt(40)
    cache = tilepress.kv_cache(model, "bfp4")
    logits(model, tokens, cache)
    twin = copy.deepcopy(cache)
    first = logits(model, prompt(5, seed=1), cache)
    assert torch.equal(logits(model, prompt(5, seed=1), twin), first)
    assert cache.get_seq_length() == twin.get_seq_length() == 45


@pytest.mark.parametrize("name", GROWING)
def test_sequences_are_repeated_and_chosen(name):
    model = make()
    cache = tilepress.kv_cache(model, name)
    logits(model, prompt(40, batch=2), cache)
    cache.batch_repeat_interleave(2)
    assert cache.batch_size == 4
    cache.batch_select_indices(torch.tensor([0, 3]))
    both = tilepress.kv_cache(model, name)
    logits(model, prompt(40, batch=2), both)
    assert torch.equal(logits(model, prompt(3, batch=2), cache), logits(model, prompt(3, batch=2), both))
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.nbytes == 0


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


def test_a_file_that_lies_is_refused(tmp_path):
    """Sealed anew, with masks that ask for more values than there are."""
    model, path = make(), tmp_path / "talk.safetensors"
    cache = tilepress.kv_cache(model, "sparse:k30,v50")
    logits(model, prompt(50), cache)
    layer = cache.layers[1].store
    state = layer.state()
    layer.state = lambda: {**state, "masks": torch.full_like(state["masks"], 255)}
    cache.save(path)
    with pytest.raises(DamagedError, match="layer 1 is damaged: masks ask for more values than a block has"):
        tilepress.load_kv_cache(model, path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tokens": [[1, 2]]}, r"has tokens \[1, 2\], and holds 50 of a sequence"),
        ({"tokens": [[1, 2], [3]]}, "its tokens cannot be understood"),
        ({"tokens": "w5"}, "its tokens cannot be understood"),
        ({"layers": None}, "holds no KV cache"),
        ({"layers": [{"columns": 0}] * 2}, "the header cannot be understood"),
        ({"layers": [{"columns": 1, "lengths": [1] * 9999, "sha256": {}}] * 2}, "the header cannot be understood"),
        ({"kv_cache": "bfp5"}, "is no cache format"),
        ({"layers": [{"columns": float("inf"), "lengths": [1], "sha256": {}}] * 2}, "the header cannot be understood"),
        ({"kv_cache": "bfp8"}, "layer 0 is damaged"),
        ({"kv_cache": "bfp:m4:hi8:initial1048576:local1048576"}, "write initial and local of 4096 tokens or fewer"),
        ({"kv_cache": "bfp:m4:hi8:initial2048:local2048"}, "1 sequences have more bytes than there are"),
        ({"kv_cache": "fp16"}, "a cache in fp16 is never saved"),
        ({"version": 2}, "version 2; this tilepress reads version 3"),
        ({"model": "0" * 64}, "holds no KV cache"),
        ({"model": {"exact": "0"}}, "holds no KV cache"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, monkeypatch, change, why):
    """Sealed anew."""
    model, path = make(), tmp_path / "talk.safetensors"
    cache = tilepress.kv_cache(model, "bfp4")
    logits(model, prompt(50), cache)
    seal = kv_cache_module.write_sealed
    monkeypatch.setattr(kv_cache_module, "write_sealed", lambda *two: seal(*two[:2], {**two[2], **change}))
    cache.save(path, prompt(50))
    with pytest.raises((DamagedError, ValueError), match=why):
        tilepress.load_kv_cache(model, path)


@pytest.mark.parametrize(
    ("field", "value"), [("lengths", [0] * 100_000), ("lengths", [10**30]), ("sha256", {"codes": "0", "more": "1"})]
)
def test_layers_that_lie_are_refused(tmp_path, monkeypatch, field, value):
    model, path = make(), tmp_path / "talk.safetensors"
    cache = tilepress.kv_cache(model, "bfp4")
    logits(model, prompt(50), cache)
    describe = kv_cache_module.describe_layer

    def lie(layer):
        description, arrays = describe(layer)
        return {**description, field: value}, arrays

    monkeypatch.setattr(kv_cache_module, "describe_layer", lie)
    cache.save(path)
    with pytest.raises(DamagedError):
        tilepress.load_kv_cache(model, path)


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_no_byte_of_a_file_changes_unseen(tmp_path, name):
    model, path = make(), tmp_path / "talk.safetensors"
    cache = tilepress.kv_cache(model, name)
    logits(model, prompt(34), cache)
    cache.save(path, prompt(34))
    whole, random = path.read_bytes(), Random(0)
    for _ in range(60):
        at = random.randrange(len(whole))
        cut = random.random() < 0.3
        path.write_bytes(
            whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1 << random.randrange(8)]) + whole[at + 1 :]
        )
        with pytest.raises(DamagedError):
            tilepress.load_kv_cache(model, path)
    path.write_bytes(whole)
    assert torch.equal(tilepress.load_kv_cache(model, path).tokens, prompt(34))


SPARSE = ["sparse:k30,v50", "bf16+sparse:k10,v10", "bfp8+sparse:k10,v10"]


@pytest.mark.parametrize("name", ["fp16", "bf16", *SPARSE])
def test_halves_and_pruned_ones(name):
    model, tokens = make(), prompt(60)
    plain = logits(model, tokens, DynamicCache(config=model.config))
    found = logits(model, tokens, tilepress.kv_cache(model, name), sizes=[50, 1, 9])
    assert close(found, plain, 0.5 if "sparse" in name else 0.02)
    assert not torch.equal(found, plain)
    options = {"max_new_tokens": 5, "num_beams": 2, "do_sample": False}
    assert model.generate(tokens, past_key_values=tilepress.kv_cache(model, name), **options).shape == (1, 65)


SAVED = [("bfp4", "none"), ("bfp4", "online"), ("sparse:k30,v50", "none"), ("bfp8+sparse:k30,v50", "online")]


@pytest.mark.parametrize("family", ["llama", "sliding"])
@pytest.mark.parametrize(("name", "smoothing"), SAVED)
@pytest.mark.parametrize("tokens", [0, 20, 90])
def test_a_saved_cache_goes_on(tmp_path, family, name, smoothing, tokens):
    model = make(family)
    cache = tilepress.kv_cache(model, name, smoothing)
    if tokens:
        mask = torch.ones(2, tokens, dtype=torch.long)
        mask[1, :6] = 0
        logits(model, prompt(tokens, batch=2), cache, mask=mask)
    cache.save(tmp_path / "talk.safetensors")
    again = tilepress.load_kv_cache(model, tmp_path / "talk.safetensors")
    assert again.get_seq_length() == tokens and again.format == cache.format
    if tokens:
        mask = torch.nn.functional.pad(mask, (0, 4), value=1)
        more = [logits(model, prompt(4, batch=2), c, mask=torch.cat([mask], 1)) for c in (cache, again)]
        assert torch.equal(*more)


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_a_damaged_or_foreign_file_is_refused(tmp_path, name):
    model, path = make(), tmp_path / "talk.safetensors"
    cache = tilepress.kv_cache(model, name)
    logits(model, prompt(50), cache)
    cache.save(path)
    whole = path.read_bytes()
    for at in (20, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedError):
            tilepress.load_kv_cache(model, path)
    path.write_bytes(whole[:-5])
    with pytest.raises(DamagedError):
        tilepress.load_kv_cache(model, path)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="another model's: 2 heads of 32 channels, not 1 of 32"):
        tilepress.load_kv_cache(make("multi-query"), path)
    other = make()
    other.model.layers[0].self_attn.v_proj.weight.data[0, 0] += 0.5
    with pytest.raises(ValueError, match="another model's cache: the weights that made it are not this model's"):
        tilepress.load_kv_cache(other, path)
    assert tilepress.load_kv_cache(make().to(torch.bfloat16), path).get_seq_length() == 50
    with pytest.raises(ValueError, match="another model's cache: it has 2 layers, not 3"):
        tilepress.load_kv_cache(LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_hidden_layers": 3})), path)
    with pytest.raises(ValueError, match="only packed caches are saved"):
        tilepress.kv_cache(model, "fp16").save(path)
    assert path.read_bytes() == whole


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
@pytest.mark.parametrize("name", GROWING)
def test_masks_that_hide_what_was_seen_are_refused(name):
    model = make()
    cache = tilepress.kv_cache(model, name)
    logits(model, prompt(40), cache)
    mask = torch.ones(1, 41, dtype=torch.long)
    mask[0, 5] = 0
    with pytest.raises(ValueError, match="do not mix sides of padding"):
        model(prompt(1), attention_mask=mask, past_key_values=cache)


@torch.no_grad()
@pytest.mark.parametrize("name", GROWING)
def test_padding_that_changes_sides_is_refused(name):
    """A batch padded on the left, then the same tokens as if they were padded on the right."""
    model, tokens = make(), prompt(20, batch=2)
    left, right = torch.ones(2, 24, dtype=torch.long), torch.ones(2, 24, dtype=torch.long)
    left[1, :6], right[1, 14:20] = 0, 0
    cache = tilepress.kv_cache(model, name)
    model(tokens, attention_mask=left[:, :20], past_key_values=cache)
    with pytest.raises(ValueError, match="do not mix sides of padding"):
        model(prompt(4, batch=2), attention_mask=right, past_key_values=cache)
