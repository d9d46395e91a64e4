"""Tensors with the negative bit set: views whose memory holds the negative of what they say, as `z.conj().imag` is."""

import pytest
import torch
from tests.nn.test_decoding import primed_model, prompt

from tilepress import kernels, tiles
from tilepress import nn as packed_nn
from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import kv_store

TYPES = (torch.float32, torch.bfloat16, torch.float16)


def values(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def negated(x):
    """The same values, with the negative of each in memory."""
    negated = torch._neg_view(-x)
    assert negated.is_neg() and negated.is_contiguous() and torch.equal(negated, x)
    return negated


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activations", ["float", "int8"])
@pytest.mark.parametrize("variant", ["", "linear_f32_i8_int"])
def test_linear(dtype, activations, variant):
    matrix, x, bias = tiles.pack(values(40, 96), "int4:g32"), values(3, 96, dtype=dtype, seed=1), values(40, seed=2)
    options = {"activations": activations, "variant": variant}
    for shift in (None, bias, bias.to(dtype)):
        expected = kernels.linear(x, matrix, shift, **options)
        assert torch.equal(kernels.linear(negated(x), matrix, shift, **options), expected)
        if shift is not None:
            assert torch.equal(kernels.linear(x, matrix, negated(shift), **options), expected)


def test_the_imaginary_part_of_a_conjugate():
    matrix, z = tiles.pack(values(40, 96), "int4:g32"), torch.complex(values(3, 96), values(3, 96, seed=1))
    x = z.conj().imag
    assert x.is_neg()
    assert torch.equal(kernels.linear(x, matrix), kernels.linear(-z.imag, matrix))


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
@pytest.mark.parametrize("token_mask", [None, torch.ones(1, 5, dtype=torch.bool)])
def test_attention(name, which, token_mask):
    tensors = [values(1, heads, 5, 32, seed=heads) for heads in (4, 2, 1)]
    tensors[2] = values(1, 2, 5, 32, seed=9)
    results = []
    for given in (tensors, [negated(one) if i == which else one for i, one in enumerate(tensors)]):
        cache = kv_store(parse_kv(name), 1, 2, 32)
        cache.append(*given[1:])
        results.append(cache.attend(*given, 0.125, token_mask))
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", TYPES)
def test_packing(dtype):
    weight = values(20, 64, dtype=dtype)
    packed = tiles.pack(negated(weight), "int4:g32")
    assert torch.equal(packed.codes, tiles.pack(weight, "int4:g32").codes)
    planes = kernels.pack_planes(negated(weight), "bfp:g64:m7")
    assert torch.equal(planes.planes, kernels.pack_planes(weight, "bfp:g64:m7").planes)


def test_arrays_of_a_matrix_are_no_views():
    packed = tiles.pack(values(20, 64), "int4:g32")
    with pytest.raises(tiles.DamagedError, match="codes must be contiguous on the CPU, and no negated view"):
        tiles.PackedMatrix(packed.format, 20, 64, 8, torch._neg_view(packed.codes), scales=packed.scales)


@torch.no_grad()
@pytest.mark.parametrize("what", ["embeddings", "norm", "bias"])
def test_decoding(what):
    """Embeddings are left to the modules; norms and biases are taken as they are, which modules do too."""
    results = []
    for turn in (lambda x: x, negated):
        model, cache = primed_model(family="qwen2")
        x = model.model.embed_tokens(prompt(1))
        layer = model.model.layers[1]
        if what == "norm":
            layer.input_layernorm.weight = torch.nn.Parameter(turn(values(len(layer.input_layernorm.weight))))
        elif what == "bias":
            layer.self_attn.q_proj.bias = turn(values(layer.self_attn.q_proj.out_features))
        x = turn(x) if what == "embeddings" else x
        results.append(model(inputs_embeds=x, past_key_values=cache).logits)
    one, other = results
    assert (one - other).norm() <= 1e-4 * one.norm()


@torch.no_grad()
def test_a_norm_whose_sign_is_turned_in_place():
    model, cache = primed_model()
    model(prompt(1), past_key_values=cache)
    norm = model.model.layers[0].input_layernorm
    norm.weight = torch.nn.Parameter(torch._neg_view(norm.weight.detach()))  # at the same address
    results = []
    for natively in (True, False):
        packed_nn.decode_natively(model) if natively else packed_nn.decode_by_modules(model)
        results.append(model(prompt(2)[:, :1], past_key_values=cache).logits)
        cache.crop(-1)
    assert (results[0] - results[1]).norm() <= 1e-4 * results[0].norm()
