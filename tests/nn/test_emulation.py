"""Block-floating-point activations by emulation and natively: the same integers, the same outputs but for rounding."""

import pytest
import torch
from tests.models import tiny
from torch.nn import functional

from tilepress import tiles
from tilepress.formats import BFP
from tilepress.formats.bfp import encode, rounded
from tilepress.kernels import reference
from tilepress.models import compress_model
from tilepress.models.linear_form import replace_layer
from tilepress.models.registration import packed_layers
from tilepress.nn import PackedLinear, emulated, with_activations
from tilepress.nn.emulation import to_fp16, to_int8


def inputs_of(model, tokens):
    """Name → what each packed layer is given."""
    inputs = {}
    handles = [
        layer.register_forward_pre_hook(lambda _, x, name=name: inputs.__setitem__(name, x[0]))
        for name, layer in packed_layers(model)
    ]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    return inputs


@pytest.mark.isas
@pytest.mark.parametrize("mantissa", [1, 4, 7, 8, 9, 13, 16])
def test_layers_give_the_same_either_way(mantissa):
    torch.manual_seed(mantissa)
    matrix = tiles.pack(torch.randn(48, 320) / 16, "int4:g32")
    x = torch.randn(5, 320) * torch.logspace(-3, 3, 5)[:, None]
    native = PackedLinear(matrix, activations=f"bfp:g64:m{mantissa}")(x)
    weight = tiles.unpack(matrix)
    values = rounded(x, BFP(64, mantissa))
    emulation = functional.linear(values, weight)
    bound = 320 * 2.0**-23 * values.abs() @ weight.abs().T
    assert ((native - emulation).abs() <= bound).all()


@pytest.mark.isas
def test_int8_gives_the_same_either_way():
    torch.manual_seed(0)
    matrix = tiles.pack(torch.randn(48, 320) / 16, "int4:g32")
    x = torch.randn(5, 320) * torch.logspace(-3, 3, 5)[:, None]
    native, weight, values = PackedLinear(matrix, activations="int8")(x), tiles.unpack(matrix), to_int8(x)
    bound = 320 * 2.0**-23 * values.abs() @ weight.abs().T
    assert ((native - functional.linear(values, weight)).abs() <= bound).all()
    steps = 127 * x / x.abs().amax(-1, keepdim=True)
    assert (127 * values / x.abs().amax(-1, keepdim=True) - steps).abs().max() <= 0.5 + 1e-4
    assert to_int8(x.view(5, 4, 80).half()).dtype == torch.float16


def test_group_dots_are_the_same_integers():
    """In units of a group and a scale of 1, float32 sums of products of small integers are exact: bit for bit."""
    torch.manual_seed(0)
    weight = torch.randint(-7, 8, (16, 64)).float()
    weight[:, ::32] = 7.0  # every group's largest, so that its scale is 1
    matrix = tiles.pack(weight, "int4:g32")
    assert torch.equal(tiles.unpack(matrix), weight)
    x = torch.randn(9, 64)
    blocks = encode(x, BFP(64, 7))
    integers = torch.where(blocks.sign, -blocks.magnitude, blocks.magnitude).flatten(1)
    dots = integers.long() @ weight.long().T
    unit = torch.ldexp(torch.ones(9, 1), blocks.exponent.int() - 15 - 6)
    native = PackedLinear(matrix, activations="bfp:g64:m7")(x)
    assert torch.equal(native, dots.float() * unit)
    assert torch.equal(native, functional.linear(rounded(x, BFP(64, 7)), weight))
    assert torch.equal(native, reference.linear_integer(x, matrix, BFP(64, 7)))


@pytest.mark.isas
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_models_give_the_same_either_way(family):
    model, tokens = tiny.make(family), tiny.windows()
    compress_model(model, {"weights": {"format": "int8:g32"}, "activations": {"format": "anda:8,7,6,5"}})
    assert {layer.activations for _, layer in packed_layers(model)} >= {f"bfp:g64:m{bits}" for bits in (8, 7, 6, 5)}
    for name, layer in list(packed_layers(model)):
        if layer.activations == "float":  # which some processors compute with weights rounded to bf16
            replace_layer(model, name, tiny.dense_layer(layer))
    formats = {name: BFP(64, int(layer.activations.rpartition("m")[2])) for name, layer in packed_layers(model)}
    with torch.no_grad():
        native = model(tokens).logits
        for name, layer in list(packed_layers(model)):
            replace_layer(model, name, tiny.dense_layer(layer))
        plain = model(tokens).logits
        with emulated(model, formats):
            emulation = model(tokens).logits
    # A sum that differs in its last bit may fall on the other side of a truncation further on.
    assert (native - emulation).norm() < 0.1 * (native - plain).norm()


def test_native_where_it_can_be_and_emulated_elsewhere():
    model = tiny.make("llama")
    compress_model(model, {"weights": {"override": [{"match": "*.o_proj", "format": "bf16"}]}})
    layers = dict(packed_layers(model))
    up, out = (name for name in layers if name.startswith("model.layers.0") and ("up" in name or "o_proj" in name))
    up, out = sorted((up, out), key=lambda name: "o_proj" in name)
    seen = {}
    with with_activations(model, {up: BFP(64, 16), out: BFP(64, 4)}):
        assert layers[up].activations == "bfp:g64:m16" and layers[out].activations == "float"
        layers[out].register_forward_hook(lambda _, x, y: seen.update(x=x[0], y=y))
        with torch.no_grad():
            model(tiny.windows())
    assert torch.equal(seen["x"], rounded(seen["x"], BFP(64, 4)))
    assert layers[up].activations == "float" and not layers[out]._forward_pre_hooks


def test_everything_is_as_before_after_an_error():
    model = compress_model(tiny.make("llama"), {})
    name, layer = next(iter(packed_layers(model)))
    with pytest.raises(RuntimeError, match="in between"), with_activations(model, {name: BFP(64, 4)}):
        raise RuntimeError("in between")
    assert layer.activations == "float"


def test_fp16():
    x = torch.tensor([1 + 2**-11, 1e6, -1e6, 1e-9])
    assert to_fp16(x).tolist() == [1.0, 65504.0, -65504.0, 0.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_emulation_on_cuda_is_that_on_the_cpu():
    model, tokens = tiny.make("llama"), tiny.windows()
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    formats = {name: BFP(64, 5) for name in names if name != "lm_head"}
    with torch.no_grad(), emulated(model, formats):
        here = model(tokens).logits
        there = model.cuda()(tokens.cuda()).logits.cpu()
    assert (here - there).norm() < 0.01 * here.norm()
