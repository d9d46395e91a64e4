"""Gradients through packed layers: those of a dense layer with the same weights, or an error."""

import pytest
import torch
from tests.models.tiny import make
from tests.nn.test_decoding import packed_model, prompt
from torch import nn
from transformers import DynamicCache

import tilepress
from tilepress import kernels, tiles
from tilepress.formats import BFP
from tilepress.nn import PackedLinear, decode_natively
from tilepress.nn.emulation import emulated
from tilepress.nn.kv_emulation import emulate_kv

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(48, 64, generator=GENERATOR), torch.randn(48, generator=GENERATOR)
CASES = [
    ("int4:g32", "float", False),
    ("int4:g32", "int8", False),
    ("uint4:g32", "bfp:g32:m8", True),
    ("mxfp4", "float", False),
    ("nf4:g64", "float", True),
    ("bf16", "float", True),
]


def pair(format, activations="float", sparse=False):
    """A packed layer, and a dense one with its weights."""
    packed = PackedLinear(tiles.pack(WEIGHT, format, mask=WEIGHT > 0 if sparse else None), BIAS, activations)
    dense = nn.Linear(64, 48)
    dense.load_state_dict({"weight": tiles.unpack(packed.matrix), "bias": BIAS})
    return packed, dense


def input_gradient(module, x, upstream):
    x = x.detach().clone().requires_grad_()
    (module(x) * upstream).sum().backward()
    return x.grad


def cosine(one, other):
    return float(torch.cosine_similarity(one.flatten().double(), other.flatten().double(), 0))


@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 64), (40, 64)], ids=str)
@pytest.mark.parametrize(("format", "activations", "sparse"), CASES)
def test_the_gradient_is_that_of_the_unpacked_weights(format, activations, sparse, shape):
    packed, dense = pair(format, activations, sparse)
    x, upstream = torch.randn(shape), torch.randn(*shape[:-1], 48)
    torch.testing.assert_close(input_gradient(packed, x, upstream), input_gradient(dense, x, upstream))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_have_gradients_of_their_type(dtype):
    packed, dense = pair("int4:g32")
    x, upstream = torch.randn(5, 64, dtype=dtype), torch.randn(5, 48, dtype=dtype)
    actual = input_gradient(packed, x, upstream)
    assert actual.dtype == dtype and cosine(actual, input_gradient(dense, x.float(), upstream.float())) > 0.9999


def test_the_result_and_a_bias_that_is_learned():
    packed, dense = pair("int4:g32")
    x, bias = torch.randn(5, 64), BIAS.clone().requires_grad_()
    y = kernels.linear(x, packed.matrix, bias)
    assert torch.equal(y, kernels.linear(x, packed.matrix, BIAS))
    y.square().sum().backward()
    dense(x).square().sum().backward()
    torch.testing.assert_close(bias.grad, dense.bias.grad, rtol=1e-2, atol=1e-2)
    assert not packed(x).requires_grad  # of a layer, both are fixed
    bias.grad = None
    kernels.linear(x[0], packed.matrix, bias).sum().backward()
    assert torch.equal(bias.grad, torch.ones(48))


def test_without_grad_mode_nothing_is_recorded():
    packed, _ = pair("int4:g32")
    x = torch.randn(2, 64, requires_grad=True)
    with torch.no_grad():
        assert not packed(x).requires_grad
    with torch.inference_mode():
        assert not packed(x).requires_grad


def test_gradients_of_gradients():
    def second(module):
        x = torch.linspace(-1, 1, 192).view(3, 64).requires_grad_()
        (first,) = torch.autograd.grad(module(x).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    assert cosine(*map(second, pair("int4:g32"))) > 0.9999


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # inside inductor
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_layer_has_the_same_gradient(backend):
    torch._dynamo.reset()
    packed, dense = pair("int4:g32", "int8")
    x, upstream = torch.randn(5, 64), torch.randn(5, 48)
    actual = input_gradient(torch.compile(packed, fullgraph=True, backend=backend), x, upstream)
    torch.testing.assert_close(actual, input_gradient(dense, x, upstream))


def test_the_operator_keeps_torchs_rules_for_gradients():
    packed, _ = pair("int4:g32")
    x, bias = torch.randn(3, 64, requires_grad=True), BIAS.clone().requires_grad_()
    torch.library.opcheck(torch.ops.tilepress.linear.default, (x, packed.codes, bias, packed.handle, 48, "float"))


def embedding_gradient(model, **options):
    model.zero_grad()
    model(prompt(9), **options).logits.square().mean().backward()
    return model.get_input_embeddings().weight.grad.clone()


def test_a_whole_model_has_the_gradient_of_the_unpacked_one():
    packed = packed_model(format="int8:g32").requires_grad_(True)
    dense = tilepress.models.registration.unpack_layers(packed_model(format="int8:g32"))
    dense.get_input_embeddings().requires_grad_(True)
    assert cosine(embedding_gradient(packed), embedding_gradient(dense)) > 0.9999


LEARNED = {
    "embedding": lambda model, cache: model.get_input_embeddings().weight,
    "norms": lambda model, cache: model.model.layers[0].input_layernorm.weight,
    "cache": lambda model, cache: cache.layers[0].values,
}


@pytest.mark.parametrize("learned", LEARNED)
def test_native_decoding_leaves_gradients_to_the_modules(learned):
    """One token, which native layers would compute, whatever of it is learned."""
    gradients = []
    for natively in (True, False):
        model = packed_model().requires_grad_(False)
        if natively:
            decode_natively(model)
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(prompt(), past_key_values=cache)
        parameter = LEARNED[learned](model, cache)
        parameter.requires_grad_(True)
        model(prompt(1), past_key_values=cache).logits.square().mean().backward()
        gradients.append(parameter.grad)
    assert bool(gradients[0].any()) and torch.equal(*gradients)


@pytest.mark.parametrize("format", ["bfp4", "sparse:k30,v50"])
@pytest.mark.parametrize("natively", [False, True])
def test_a_packed_cache_refuses_gradients_and_still_computes(format, natively):
    model = packed_model(head_dim=32)
    if natively:
        decode_natively(model)
    with torch.no_grad():
        expected = model(prompt(5), past_key_values=tilepress.kv_cache(model, format)).logits
    cache = tilepress.kv_cache(model, format)
    actual = model(prompt(5), past_key_values=cache).logits
    assert torch.equal(actual, expected)
    for logits in (actual, model(prompt(1), past_key_values=cache).logits):
        with pytest.raises(
            RuntimeError, match="attention over a packed KV cache has no gradient: to train, run the model"
        ):
            logits.sum().backward()


def test_emulated_attention_refuses_gradients():
    model = make("llama", head_dim=32)
    emulate_kv(model, "bfp4")
    with pytest.raises(RuntimeError, match="has no gradient: to train"):
        model(prompt(9)).logits.sum().backward()


def test_emulated_activations_round_straight_through():
    dense, x, upstream = pair("int4:g32")[1], torch.randn(5, 64), torch.randn(5, 48)
    expected = input_gradient(dense, x, upstream)
    model = nn.Sequential(dense)
    with emulated(model, {"0": BFP(32, 4)}):
        assert not torch.equal(model(x), dense.forward(x))
        torch.testing.assert_close(input_gradient(model, x, upstream), expected)
