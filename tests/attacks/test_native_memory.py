"""torch moves the memory of a tensor that is shared with another process, and frees what it left."""

import gc
import multiprocessing

import pytest
import torch

from tilepress import kernels, nn, tiles
from tilepress.tiles.native import held_bytes

ARRAYS = [("int4:g32", False), ("uint4:g32", True), ("bf16", True), ("int8:row", False)]


def reuse_freed_memory():
    """So that whoever reads freed memory reads something else there."""
    gc.collect()
    return [torch.full((size,), torch.nan) for size in (64, 256, 1024, 4096, 16384) for _ in range(200)]


@pytest.mark.parametrize(("format", "sparse"), ARRAYS)
def test_native_code_reads_no_memory_that_torch_has_freed(format, sparse):
    packed = tiles.pack(torch.randn(256, 256), format, sparse=sparse)
    x = torch.randn(3, 256)
    y = kernels.linear(x, packed)
    for array in packed.streams.values():
        before = array.data_ptr()
        array.share_memory_()
        assert array.data_ptr() != before
    taken = reuse_freed_memory()
    assert torch.equal(kernels.linear(x, packed), y) and taken
    assert torch.equal(tiles.unpack(packed), tiles.unpack(tiles.PackedMatrix(**vars_of(packed))))


def vars_of(packed):
    return {"format": packed.format, "rows": packed.rows, "cols": packed.cols, "operand_bits": packed.operand_bits} | {
        name: array.clone() for name, array in packed.streams.items()
    }


def test_a_state_that_went_through_a_queue_leaves_its_layer_as_it_was():
    layer = nn.PackedLinear(tiles.pack(torch.randn(256, 256), "int4:g32"))
    x = torch.randn(1, 256)
    y = layer(x)
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.reductions.init_reductions()
    queue.put({name: array for name, array in layer.state_dict().items() if name == "codes"})
    taken = reuse_freed_memory()
    assert torch.equal(layer(x), y) and taken


@pytest.mark.parametrize(("format", "sparse"), ARRAYS)
def test_arrays_that_were_packed_are_not_copied(format, sparse):
    packed = tiles.pack(torch.randn(64, 256), format, sparse=sparse)
    for name, array in packed.streams.items():
        if name != "offsets":  # which are copied by native code
            assert held_bytes(array).ctypes.data == array.data_ptr()
            assert array.data_ptr() % 64 == 0
