"""What a packed layer saves and loads."""

import copy
import json

import pytest
import torch
from torch import nn

from tilepress import tiles
from tilepress.nn import PackedLinear
from tilepress.tiles import DamagedError

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(48, 64, generator=GENERATOR), torch.randn(48, generator=GENERATOR)
FORMATS = [("int4:g32", False), ("uint4:g32", True), ("bf16", True), ("mxfp4", False)]


def layer(format="int4:g32", sparse=True, scale=1.0):
    return PackedLinear(tiles.pack(scale * WEIGHT, format, mask=WEIGHT > 0 if sparse else None), BIAS)


@pytest.mark.parametrize(("format", "sparse"), FORMATS)
def test_state_of_one_layer_makes_another(format, sparse):
    first, second, x = layer(format, sparse), layer(format, sparse, scale=3.0), torch.randn(5, 64)
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    state = first.state_dict()
    assert set(state) == {"weight", "bias", *first.matrix.streams}
    assert json.loads(state["weight"].numpy().tobytes())["format"] == format


@pytest.mark.parametrize(("format", "sparse"), FORMATS)
def test_a_layer_that_awaits_its_arrays(format, sparse):
    first, x = layer(format, sparse), torch.randn(5, 64)
    streams = {name: array.dtype for name, array in first.matrix.streams.items()}
    plain = nn.Linear(64, 48, device="meta")
    second = PackedLinear.awaiting(plain, streams)
    with pytest.raises(RuntimeError, match="no weights were loaded into this layer yet"):
        second(x)
    for name, array in first.state_dict().items():
        setattr(second, name, array.clone())
    second.complete()
    assert torch.equal(first(x), second(x))


def test_loading_never_writes_into_arrays_in_use():
    first, second = layer(), layer(scale=3.0)
    codes = first.matrix.codes
    before = codes.clone()
    first.load_state_dict(second.state_dict())
    assert torch.equal(codes, before) and first.matrix.codes is not codes


@pytest.mark.parametrize("part", ["codes", "mask", "offsets", "scales", "weight"])
def test_damaged_state_is_refused_and_changes_nothing(part):
    module, x = layer(), torch.randn(5, 64)
    before, state = module(x), {name: array.clone() for name, array in module.state_dict().items()}
    state[part].view(-1).view(torch.uint8)[5] ^= 64
    with pytest.raises(RuntimeError, match=r"the layer.* is damaged"):
        module.load_state_dict(state)
    assert torch.equal(module(x), before)


def test_state_that_does_not_fit_is_refused():
    module, state = layer(), layer().state_dict()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "weight"'):
        module.load_state_dict({name: array for name, array in state.items() if name != "weight"})
    with pytest.raises(RuntimeError, match="its description and its arrays disagree about scales"):
        module.load_state_dict({name: array for name, array in state.items() if name != "scales"})
    other = PackedLinear(tiles.pack(WEIGHT[:32], "int4:g32"), BIAS[:32])
    with pytest.raises(RuntimeError, match="it is 32×64, not 48×64"):
        module.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "bias"'):
        module.load_state_dict({name: array for name, array in state.items() if name != "bias"})
    plain = nn.Linear(64, 48)
    with pytest.raises(RuntimeError, match="its description cannot be understood"):
        module.load_state_dict(plain.state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        plain.load_state_dict(state)  # the guard: an ordinary layer does not take ours for its own


def test_state_of_another_version_is_refused():
    module, state = layer(), dict(layer().state_dict())
    text = state["weight"].numpy().tobytes().replace(b'"version": 2', b'"version": 1')
    with pytest.raises(RuntimeError, match="the layer has version 1; this tilepress reads version 2"):
        module.load_state_dict(state | {"weight": torch.frombuffer(bytearray(text), dtype=torch.int8)})


def test_an_incomplete_layer_is_refused():
    module = PackedLinear.awaiting(nn.Linear(64, 48), {"codes": torch.uint8, "scales": torch.bfloat16})
    with pytest.raises(DamagedError, match="layer 7 is damaged: its description cannot be understood"):
        module.complete("layer 7")


@pytest.mark.parametrize("cast", [nn.Module.half, lambda module: module.to(torch.bfloat16)])
def test_casts_change_the_bias_alone(cast):
    module, x = layer("int8:row"), torch.randn(2, 64)
    before, scales = module.matrix, module.scales
    cast(module)
    assert module.matrix is before and module.scales is scales and scales.dtype == torch.float32
    assert module.bias.dtype != torch.float32
    assert torch.allclose(module(x), layer("int8:row")(x), atol=0.1)


def test_copies_share_the_matrix_and_nothing_else():
    module = layer()
    again = copy.deepcopy(nn.Sequential(module))[0]
    assert again.matrix is module.matrix and again.bias is not module.bias
    again.bias.zero_()
    assert module.bias.any()
