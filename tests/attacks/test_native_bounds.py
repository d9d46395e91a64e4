"""Native code stays within the memory it was given, whatever Python does to arrays afterwards and whatever it is called
with."""

import numpy as np
import pytest
import torch
from tests.tiles.cases import matrix

from tilepress import _native, kernels, tiles

FORMATS = ["int4:g32", "int8:g32", "uint3:row", "mxfp4", "e4m3:row", "bf16", "fp16"]
X = torch.randn(40, 200, generator=torch.Generator().manual_seed(0))


def packed(format, density=0.5):
    return tiles.pack(matrix(100, 200, density), format, sparse=density < 1)


def everything(made):
    """All that native code reads a matrix for."""
    results = [kernels.linear(X[:batch], made) for batch in (1, 5, 40)]
    if made.operand_bits == 8 and "int" in str(made.format):
        results += [kernels.linear(X[:batch], made, activations="int8") for batch in (1, 40)]
    return [*results, tiles.unpack(made), tiles.unpack_codes(made)[0].codes]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("fill", [0, 1, -1, 10**6, 2**62])
def test_offsets_that_are_overwritten_change_nothing(format, fill, isa):
    made = packed(format)
    expected = everything(made)
    made.offsets.fill_(fill)
    for result, before in zip(everything(made), expected, strict=True):
        assert torch.equal(result, before)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_arrays_that_are_overwritten_give_wrong_results_or_errors(format, seed, isa):
    generator = torch.Generator().manual_seed(seed)
    for density in (0.5, 1.0):
        for name in packed(format, density).streams:
            made = packed(format, density)
            assert made.native  # made now
            array = made.streams[name].view(torch.uint8)
            array.copy_(torch.randint(0, 256, array.shape, generator=generator, dtype=torch.uint8))
            try:
                everything(made)
            except (RuntimeError, ValueError) as error:
                assert "changed while it was used" in str(error) or "finite" in str(error)


@pytest.mark.parametrize("name", ["codes", "mask", "scales"])
def test_memory_that_native_code_reads_cannot_be_resized(name):
    made = packed("int4:g32")
    assert made.native  # made now
    with pytest.raises(RuntimeError, match="resize"):
        made.streams[name].untyped_storage().resize_(0)


def native_linear(made, x, bias, y, type="fp32", variant=""):
    made.native.linear_into(x, type, bias, y, 0, -1, variant, 1)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((799, 0, 400), "at least one row is needed"),
        ((801, 0, 400), "x has 801 entries, not 800"),
        ((800, 0, 399), "y has 399 entries, not 400"),
        ((1600, 0, 400), "y has 400 entries, not 800"),
        ((800, 99, 400), "bias has 99 entries, not 100"),
    ],
)
def test_products_of_the_wrong_sizes_are_refused(sizes, message):
    x, bias, y = sizes
    arrays = (np.zeros(x, np.uint8), np.zeros(bias, np.float32), np.zeros(y, np.uint8))
    with pytest.raises(ValueError, match=message):
        native_linear(packed("int8:g32"), *arrays)


def test_no_door_takes_addresses():
    made = packed("int8:g32")
    assert not {"linear_float", "linear_integer"} & set(dir(made.native))
    with pytest.raises(TypeError):
        native_linear(made, 4096, 0, 4096)
    assert made.native.linear(4096, None, 0, -1, 1) is None


HIDDEN, HEADS, DIM = 64, 2, 32


def layer(**changes):
    """A decoder layer of 64 hidden states, two heads of 32 and 96 neurons, with some arguments replaced."""

    def linear(rows, cols, bias=None):
        return (tiles.pack(torch.randn(rows, cols), "int8:g32").native, bias, 0, -1)

    square, up, down = linear(HIDDEN, HIDDEN), linear(96, HIDDEN), linear(HIDDEN, 96)
    arguments = {
        "type": "fp32",
        "heads": HEADS,
        "kv_heads": HEADS,
        "head_dim": DIM,
        "epsilon": 1e-5,
        "scaling": 0.2,
        "input_norm": torch.ones(HIDDEN),
        "post_norm": torch.ones(HIDDEN),
        "linears": [square, square, square, square, up, up, down],
    }
    return _native.DecoderLayer(*(arguments | changes).values())


NORM = "a norm has 64 weights of the layer's type, in a plain tensor"
BIAS = "a bias is a plain float32 tensor of 64 values"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_norm": torch.ones(63)}, NORM),
        ({"post_norm": torch.ones(64, dtype=torch.bfloat16)}, NORM),
        ({"post_norm": torch.ones(128)[::2]}, NORM),
        ({"post_norm": torch._neg_view(torch.ones(64))}, NORM),
        ({"post_norm": 4096}, NORM),
        ({"head_dim": 16}, "a matrix is 64 by 64, not 32 by 64"),
    ],
)
def test_norms_of_the_wrong_sizes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        layer(**changes)


@pytest.mark.parametrize("bias", [torch.ones(63), torch.ones(64, dtype=torch.float16), 4096])
def test_biases_of_the_wrong_sizes_are_refused(bias):
    matrix = tiles.pack(torch.randn(HIDDEN, HIDDEN), "int8:g32").native
    with pytest.raises(ValueError, match=BIAS):
        layer(linears=[(matrix, bias, 0, -1)] * 7)


def memory(layers=2, parts=2, batch=1, heads=HEADS, room=4, dim=DIM, dtype=torch.float32):
    return torch.zeros(layers, parts, batch, heads, room, dim, dtype=dtype)


def decode(memory, length=0, hidden=None, turn=None):
    turn = torch.ones(1, 1, DIM) if turn is None else turn
    hidden = torch.ones(1, 1, HIDDEN) if hidden is None else hidden
    return _native.Decoder([layer(), layer()]).decode(hidden, turn, turn, memory, length, 1)


def test_the_unchanged_decoder_works():
    assert decode(memory()).shape == (1, 1, HIDDEN)


@pytest.mark.parametrize(
    ("room", "length", "message"),
    [
        (memory(layers=1), 0, "another model's"),
        (memory(parts=1), 0, "another model's"),
        (memory(batch=2), 0, "another model's"),
        (memory(heads=1), 0, "another model's"),
        (memory(dim=16), 0, "another model's"),
        (memory(), 4, "there is no room for another token"),
        (memory(), -1, "there is no room for another token"),
        (memory(dtype=torch.bfloat16), 0, "a plain tensor of six axes"),
        (memory().flatten(0, 1), 0, "a plain tensor of six axes"),
        (memory().transpose(3, 4), 0, "a plain tensor of six axes"),
        (4096, 0, "a plain tensor of six axes"),
    ],
)
def test_caches_of_the_wrong_sizes_are_refused(room, length, message):
    with pytest.raises(ValueError, match=message):
        decode(room, length)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden": torch.ones(1, 1, HIDDEN - 1)},
        {"hidden": torch.ones(1, 2, HIDDEN)},
        {"hidden": torch.ones(1, 1, HIDDEN, dtype=torch.float16)},
        {"hidden": torch._neg_view(torch.ones(1, 1, HIDDEN))},
        {"hidden": 4096},
        {"turn": torch.ones(1, 1, DIM + 1)},
        {"turn": torch.ones(1, 1, DIM, dtype=torch.bfloat16)},
    ],
)
def test_tokens_of_the_wrong_sizes_are_left_to_python(changes):
    assert decode(memory(), **changes) is None


def test_lists_may_change_after_a_decoder_was_made_of_them():
    layers = [layer(), layer()]
    decoder = _native.Decoder(layers)
    layers.clear()
    turn = torch.ones(1, 1, DIM)
    assert decoder.decode(torch.ones(1, 1, HIDDEN), turn, turn, memory(), 0, 1) is not None
    watch = _native.Watch([({"key": decoder}, "key", decoder)], [({}, "key")], [{}])
    assert watch.is_same() and watch.is_lacking() and watch.is_empty()
