"""The module, and the operator that torch.compile sees."""

import gc

import pytest
import torch
from torch import nn

from tilepress import kernels, tiles
from tilepress.nn import PackedLinear

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(48, 64, generator=GENERATOR), torch.randn(48, generator=GENERATOR)
CASES = [("int4:g32", "int8"), ("int4:g32", "bfp:g32:m8"), ("mxfp4", "float"), ("bf16", "float")]


def layer(format="int4:g32", activations="int8", bias=BIAS):
    return PackedLinear(tiles.pack(WEIGHT, format), bias, activations)


class Block(nn.Module):
    """Ours between torch's own, as in a model."""

    def __init__(self, format, activations):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = layer(format, activations)
        self.down = PackedLinear(tiles.pack(WEIGHT.T.contiguous(), format), None, activations)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


@pytest.mark.isas
@pytest.mark.parametrize(("format", "activations"), CASES)
def test_it_is_the_function(format, activations):
    module, x = layer(format, activations), torch.randn(2, 3, 64)
    assert torch.equal(module(x), kernels.linear(x, module.matrix, BIAS, activations=activations))
    assert (module.in_features, module.out_features) == (64, 48)
    assert "activations=" + activations in repr(module)


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # inside inductor
@pytest.mark.parametrize(  # the backend sees one operator, whatever it computes: the slow one compiles it once
    ("format", "activations", "backend", "batches"),
    [
        ("int4:g32", "int8", "aot_eager", (1, 5, 9)),
        ("mxfp4", "float", "aot_eager", (1, 5, 9)),
        ("int4:g32", "int8", "inductor", (5, 9)),
    ],
)
def test_a_model_compiles_to_one_graph(format, activations, backend, batches):
    torch._dynamo.reset()
    block = Block(format, activations).eval()
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    with torch.no_grad():
        for batch in batches:
            x = torch.randn(batch, 64, generator=GENERATOR)
            assert torch.allclose(compiled(x), block(x), rtol=1e-4, atol=1e-4)


def test_the_operator_keeps_torchs_rules():
    module = layer()
    arguments = (torch.randn(3, 64), module.codes, BIAS, module.handle, 48, "int8")
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.tilepress.linear.default, arguments, test_utils=checks)


def test_a_matrix_has_one_number_while_it_lives():
    matrix = tiles.pack(WEIGHT, "int4:g32")
    handle, codes = kernels.register(matrix), matrix.codes
    assert kernels.register(matrix) == handle
    del matrix
    gc.collect()
    with pytest.raises(ValueError, match=f"no packed matrix of these codes is registered as {handle}"):
        torch.ops.tilepress.linear(torch.randn(1, 64), codes, None, handle, 48, "int8")


def test_bad_modules_are_refused():
    with pytest.raises(ValueError, match=r"the bias is \[48\], not \[47\]"):
        layer(bias=BIAS[:47])
    with pytest.raises(ValueError, match="activations are float, bf16, int8 or bfp"):
        layer(activations="int4:g32")


@pytest.mark.parametrize("bias", [True, False])
def test_a_type_or_device_that_it_cannot_follow_to_is_refused_at_once(bias):
    packed = layer(bias=BIAS if bias else None)
    with pytest.raises(TypeError, match=r"cannot be cast to float64: dequantize\(\) the model first, or call float"):
        packed.double()
    with pytest.raises(TypeError, match="compute on the CPU and cannot be moved to meta"):
        packed.to("meta")
    packed.half().float()
    assert packed(torch.randn(2, 64)).shape == (2, 48)
