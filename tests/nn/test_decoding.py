"""All decoder layers by one native call: the numbers of the modules, and the modules wherever that is not possible."""

import copy

import pytest
import torch
from tests.models.tiny import GATED, make
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
from tilepress import nn as packed_nn
from tilepress import tiles
from tilepress.formats import BFP

FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
}


def packed_model(family="llama", format="int8:g32", activations="float", dtype=torch.float32, **more):
    torch.manual_seed(0)
    kind, config, changes = FAMILIES[family]
    model = kind(config(**(GATED | changes | more))).to(dtype)
    for module in list(model.model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear):
                layer = packed_nn.PackedLinear(tiles.pack(child.weight.float(), format), child.bias, activations)
                setattr(module, name, layer)
    return model.eval()


def prompt(length=7, batch=1):
    return torch.randint(1, 60, (batch, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def primed_model(**options):
    """A model that decodes natively, and a cache that holds a prompt."""
    model = packed_model(**options)
    packed_nn.decode_natively(model)
    cache = DynamicCache(config=model.config)
    model(prompt(), past_key_values=cache)
    return model, cache


def counted(monkeypatch, method):
    """One entry for each call of the native layers' method from now on."""
    calls, layers = [], packed_nn.decoding._NativeLayers
    decode = getattr(layers, method)
    monkeypatch.setattr(layers, method, lambda *arguments: calls.append(1) or decode(*arguments))
    return calls


@pytest.fixture
def calls(monkeypatch):
    """How often native layers decoded."""
    return counted(monkeypatch, "decode")


@torch.no_grad()
def step_logits(model, tokens, cache):
    return torch.stack(
        [model(tokens[:, i : i + 1], past_key_values=cache).logits[0, -1] for i in range(tokens.shape[1])]
    )


@torch.no_grad()
def compare(model, tolerance, length=9):
    """Logits of tokens after a prompt, natively and by modules, relative to their norm."""
    layers = packed_nn.decode_natively(model)
    results = []
    for _ in range(2):
        cache = DynamicCache(config=model.config)
        model(prompt(), past_key_values=cache)
        results.append((step_logits(model, prompt(length), cache), cache))
        packed_nn.decode_by_modules(model)
    (native, ours), (plain, theirs) = results
    assert (native - plain).float().norm() <= tolerance * plain.float().norm()
    assert ours.get_seq_length() == theirs.get_seq_length() == 7 + length
    for mine, other in zip(ours.layers, theirs.layers, strict=True):
        assert (mine.keys - other.keys).float().norm() <= tolerance * other.keys.float().norm()
        assert (mine.values - other.values).float().norm() <= tolerance * other.values.float().norm()
    return layers


@pytest.mark.isas
@pytest.mark.parametrize("format", ["int8:g32", "int4:g32", "bf16", "mxfp4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_cache_are_those_of_the_modules(family, format, calls):
    model = packed_model(family, format)
    layers = compare(model, 1e-4)
    assert layers == len(model.model.layers) and len(calls) == 9


@pytest.mark.isas
@pytest.mark.parametrize("activations", ["int8", "bfp:g32:m8", "bfp:g64:m15"])
def test_integer_activations(activations, calls):
    """A value on the edge between two integers may fall to either side."""
    compare(packed_model(activations=activations), 0.02)
    assert calls


def test_activations_that_differ_from_layer_to_layer(calls):
    model = packed_model()
    for layer in model.model.layers:
        for name, mantissa in (("k_proj", 8), ("o_proj", 7)):
            getattr(layer.self_attn, name).set_activations(f"bfp:g64:m{mantissa}")
        layer.mlp.down_proj.set_activations("bfp:g64:m5")
    compare(model, 0.02)
    assert calls
    before = len(calls)
    with packed_nn.with_activations(model, {"model.layers.0.mlp.up_proj": BFP(64, 6)}):
        compare(model, 0.02)
    assert len(calls) > before


@pytest.mark.isas
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype, calls):
    compare(packed_model(dtype=dtype), 2**-5)
    assert calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_dim", [6, 34, 80])
def test_heads_of_any_size_on_every_instruction_set(head_dim, dtype, isa, calls):
    compare(packed_model(head_dim=head_dim, dtype=dtype), 1e-4 if dtype is torch.float32 else 2**-5)
    assert calls


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 1), (4, 2), (9, 1)])
def test_attention_in_pieces_and_any_number_of_heads_that_share(heads, kv_heads, isa, calls):
    """So many tokens that they are attended to in two pieces, the second of a few tokens."""
    sizes = {"hidden_size": 288, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 34}
    compare(packed_model(**sizes, max_position_embeddings=256), 1e-4, length=126)
    assert len(calls) == 126


@torch.no_grad()
def test_the_number_of_threads_changes_nothing():
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        model, cache = primed_model(activations="int8")
        results.append(step_logits(model, prompt(5), cache))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_a_cache_grows_beyond_its_room(monkeypatch):
    monkeypatch.setattr(packed_nn.decoding, "LEAST_SPARE", 3)
    compare(packed_model(), 1e-4, length=20)


@pytest.mark.isas
def test_generation_is_the_same(calls):
    model = packed_model()
    options = {"max_new_tokens": 12, "do_sample": False}
    plain = model.generate(prompt(), **options)
    packed_nn.decode_natively(model)
    assert torch.equal(model.generate(prompt(), **options), plain) and calls
    assert torch.equal(copy.deepcopy(model).generate(prompt(), **options), plain)


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"cache_implementation": "static"}, {"use_cache": False}])
def test_other_caches_and_batches_go_by_modules(options, calls):
    model = packed_model()
    options = {"max_new_tokens": 6, "do_sample": False, **options}
    plain = model.generate(prompt(), **options)
    packed_nn.decode_natively(model)
    assert torch.equal(model.generate(prompt(), **options), plain) and not calls
    padded = {"input_ids": prompt(5, 2), "attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])}
    assert model.generate(**padded, max_new_tokens=4).shape == (2, 9) and not calls


@torch.no_grad()
def test_branches_of_one_cache_do_not_disturb_each_other():
    model, cache = primed_model()
    step_logits(model, prompt(2), cache)
    branch = copy.copy(cache)
    branch.layers = [copy.copy(layer) for layer in cache.layers]
    step_logits(model, prompt(3), cache)
    saved = [layer.keys.clone() for layer in cache.layers]
    step_logits(model, prompt(4), branch)
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, saved, strict=True))
    assert cache.get_seq_length() == 12 and branch.get_seq_length() == 13


@torch.no_grad()
def test_a_cropped_cache_goes_on_from_where_it_was_cut():
    model = packed_model()
    packed_nn.decode_natively(model)
    caches = [DynamicCache(config=model.config) for _ in range(2)]
    for cache in caches:
        model(prompt(), past_key_values=cache)
    step_logits(model, prompt(4), caches[0])
    caches[0].crop(-4)
    assert torch.equal(step_logits(model, prompt(3), caches[0]), step_logits(model, prompt(3), caches[1]))


@torch.no_grad()
def test_modules_that_are_watched_or_changed_are_not_passed_by(calls):
    model, cache = primed_model()
    seen = []
    attention = model.model.layers[0].self_attn
    hook = attention.q_proj.register_forward_hook(lambda *_: seen.append(1))
    step_logits(model, prompt(1), cache)
    assert seen and not calls
    hook.remove()
    step_logits(model.train(), prompt(1), copy.deepcopy(cache))
    assert not calls
    model.eval()
    before = step_logits(model, prompt(1), copy.deepcopy(cache))
    layer = attention.o_proj
    attention.o_proj = packed_nn.PackedLinear(tiles.pack(-tiles.unpack(layer.matrix), "int8:g32"), None)
    assert not torch.allclose(step_logits(model, prompt(1), copy.deepcopy(cache)), before)
    attention.o_proj = torch.nn.Linear(layer.in_features, layer.out_features, bias=False)
    assert len(calls) == 2
    step_logits(model, prompt(1), cache)
    assert len(calls) == 2


@torch.no_grad()
def test_attentions_and_hidden_states_can_be_had():
    model, cache = primed_model()
    output = model(prompt(1), past_key_values=cache, output_hidden_states=True)
    assert len(output.hidden_states) == len(model.model.layers) + 1
    model.set_attn_implementation("eager")
    output = model(prompt(1), past_key_values=cache, output_attentions=True)
    assert len(output.attentions) == len(model.model.layers)


@pytest.fixture
def packed_calls(monkeypatch):
    """How often native layers decoded with packed caches; heads are wide enough for such."""
    monkeypatch.setitem(GATED, "head_dim", 32)
    return counted(monkeypatch, "decode_packed")


CACHES = [
    "bfp8",
    "bfp4",
    "bfp4n+rotate",
    "sparse:k30,v50",
    "bf16+sparse:k10,v60",
    "bfp8+sparse:k30,v50",
    "bfp4+sparse:k50,v0",
]


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CACHES)
def test_packed_caches(name, dtype, packed_calls):
    """One native call with a packed cache, and what modules give with it: token by token, over the end of a block.

    Of two values in halves that are nearly as small now one is left out, now the other; and what differs in its last
    bits, as norms do, is now and then rounded apart, by linear layers and then by the cache.
    """
    model, results = packed_model(dtype=dtype), []
    for natively in (True, False):
        packed_nn.decode_natively(model) if natively else packed_nn.decode_by_modules(model)
        cache = tilepress.kv_cache(model, name)
        model(prompt(), past_key_values=cache)
        results.append(step_logits(model, prompt(60), cache).float())
        assert cache.get_seq_length() == 67 and cache.layers[1].store.lengths == [67]
    native, plain = results
    errors = (native - plain).norm(dim=-1) / plain.norm(dim=-1)
    assert errors.median() < (0.01 if dtype is torch.float32 else 0.1)
    assert errors.max() < 0.1 or dtype is not torch.float32
    assert len(packed_calls) == 60


@torch.no_grad()
@pytest.mark.parametrize("name", ["bfp8", "sparse:k30,v50"])
def test_a_packed_cache_is_left_whole_by_a_token_that_is_refused(name, packed_calls):
    model = packed_model()
    packed_nn.decode_natively(model)
    cache = tilepress.kv_cache(model, name)
    model(prompt(), past_key_values=cache)
    model.model.layers[1].self_attn.k_proj.register_buffer("bias", torch.full((64,), torch.inf))
    with pytest.raises(ValueError, match="must be finite"):
        model(prompt(1), past_key_values=cache)
    assert [layer.store.lengths for layer in cache.layers] == [[7]] * 3 and cache.get_seq_length() == 7
    assert packed_calls


def test_layers_that_are_not_wholly_packed_are_left_alone():
    assert packed_nn.decode_natively(make("llama")) == 0
    assert packed_nn.decode_natively(make("opt")) == 0
    sliding = packed_model("mistral")
    for layer in sliding.model.layers:
        layer.self_attn.sliding_window = 4
    assert packed_nn.decode_natively(sliding) == 0


def test_integers_want_finite_activations():
    model = packed_model(activations="int8")
    packed_nn.decode_natively(model)
    model.model.embed_tokens.weight.data[5] = torch.inf
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(prompt(), past_key_values=cache)
        with pytest.raises(ValueError, match="activations must be finite"):
            model(torch.tensor([[5]]), past_key_values=cache)
    assert cache.get_seq_length() == 7


@torch.no_grad()
@pytest.mark.parametrize("shape", [(1, 1, 7, 16), (1, 2, 7, 8), (1, 4, 7, 16)])
def test_the_cache_of_another_model_never_reaches_native_code(shape, calls):
    model, _ = primed_model()
    cache = DynamicCache(config=model.config)
    for index in range(len(model.model.layers)):
        cache.update(torch.zeros(shape), torch.zeros(shape), index)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        model(prompt(1), past_key_values=cache)
    assert not calls
