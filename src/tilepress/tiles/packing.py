"""Packing and unpacking by native code with threads; the same bytes as `reference`."""

import itertools

import torch
from torch import Tensor

from .. import _native
from ..formats import Quantized, WeightFormat, parse_weight
from ..formats.tensors import E8M0_ONE, SCALE_DTYPES, check_weight, scale_values
from .layout import BLOCK_NEURONS, SLACK_BYTES, Layout
from .matrix import PackedMatrix, group_rows, layout_of, scale_stream, zero_stream
from .native import REAL_NAMES, empty_bytes, native_format, own_copy, raw_bytes

MOST_THREADS = _native.most_threads()  # upper limit of one call; results do not depend on it


def pack(
    weight: Tensor,
    format: str | WeightFormat,
    *,
    mask: Tensor | None = None,
    sparse: bool = False,
    scales: Tensor | None = None,
    zeros: Tensor | None = None,
    operand_bits: int | None = None,
    threads: int | None = None,
) -> PackedMatrix:
    """Quantise a [neurons, inputs] matrix, nearest rounding, and pack it.

    Args:
        weight: float32, bfloat16 or float16, finite wherever it is kept.
        format: a weight format or its name, "int4:g32" say.
        mask: [neurons, inputs]; only weights where it is true are stored, the others become zero.
        sparse: without `mask`: store only the weights that are not zero.
        scales, zeros: [neurons, groups], as `Quantized` has them, to use instead of those that each group's extremes
            give; both or neither where the format has zero points, which of a sparse matrix are whole.
        operand_bits: 8 or 16, the tile's operand width; the format's own if not given.
        threads: as many as torch uses if not given.
    """
    format = parse_weight(format)
    weight = check_weight(weight).detach().cpu().contiguous()
    layout = _layout(format, weight.shape, operand_bits, sparse or mask is not None)
    native, threads = native_format(format, layout), thread_count(threads)
    keep = raw_bytes(_check_mask(mask, weight))
    source = (raw_bytes(weight), REAL_NAMES[weight.dtype], keep)
    offsets = _no_offsets()
    if layout.sparse:
        counts = torch.empty(layout.blocks, dtype=torch.int64)
        _native.count_nonzeros(native, layout.rows, layout.cols, *source, threads, counts)
        offsets = _offsets(counts, layout)
    codes, packed_mask = _empty_codes(layout, offsets)
    scale_array, zero_array, given = _group_arrays(format, layout, scales, zeros)
    if scales is not None and not bool((scale_values(scales).abs() > 0).logical_and(scales.isfinite()).all()):
        raise ValueError("scales to divide by must be finite and not zero")
    arrays = (codes, packed_mask, offsets, raw_bytes(scale_array), raw_bytes(zero_array))
    bad = _native.pack_weights(native, *_shape(layout), *source, given, *arrays, threads)
    if bad:
        raise ValueError(f"weights must be finite: {bad} are not")
    return _matrix(format, layout, codes, packed_mask, offsets, scale_array, zero_array)


def pack_codes(
    quantized: Quantized,
    format: str | WeightFormat,
    *,
    mask: Tensor | None = None,
    operand_bits: int | None = None,
    threads: int | None = None,
) -> PackedMatrix:
    """Pack codes that something else chose; sparse where `mask` [neurons, inputs] is given."""
    format = parse_weight(format)
    codes = _check_codes(quantized, format)
    layout = _layout(format, codes.shape, operand_bits, mask is not None)
    keep = _check_mask(mask, codes)
    offsets = _no_offsets()
    if keep is not None:
        per_row = torch.zeros(layout.blocks * BLOCK_NEURONS, dtype=torch.int64)
        per_row[: layout.rows] = keep.count_nonzero(dim=1)
        offsets = _offsets(per_row.view(layout.blocks, BLOCK_NEURONS).sum(1), layout)
    packed, packed_mask = _empty_codes(layout, offsets)
    arrays = (raw_bytes(codes), raw_bytes(keep), packed, packed_mask, offsets)
    _native.pack_codes(native_format(format, layout), *_shape(layout), *arrays, thread_count(threads))
    scales, zeros, _ = _group_arrays(format, layout, quantized.scales, quantized.zeros)
    return _matrix(format, layout, packed, packed_mask, offsets, scales, zeros)


def unpack(matrix: PackedMatrix, dtype: torch.dtype = torch.float32, *, threads: int | None = None) -> Tensor:
    """The weights [neurons, inputs] that the packed matrix stands for, exact in float32."""
    weights = torch.empty(matrix.shape, dtype=torch.float32)
    matrix.native.unpack_weights(weights.view(-1), thread_count(threads))
    return weights.to(dtype)


def unpack_codes(matrix: PackedMatrix, *, threads: int | None = None) -> tuple[Quantized, Tensor | None]:
    """The codes, scales and zero points, and the mask (bool [neurons, inputs]) of a sparse matrix.

    A dropped weight has code 0.
    """
    layout = matrix.layout
    codes = torch.empty(matrix.shape, dtype=torch.int16 if layout.bits == 16 else torch.uint8)
    keep = torch.empty(matrix.shape if layout.sparse else 0, dtype=torch.bool)
    matrix.native.unpack_codes(raw_bytes(codes), raw_bytes(keep), thread_count(threads))
    scales, zeros = group_rows(matrix.scales, layout), group_rows(matrix.zeros, layout)
    return Quantized(codes, scales, zeros), keep if layout.sparse else None


def _layout(format: WeightFormat, shape: torch.Size, operand_bits: int | None, sparse: bool) -> Layout:
    return layout_of(format, shape[0], shape[1], operand_bits or format.operand_bits, sparse)


def _shape(layout: Layout) -> tuple[int, int, int, bool]:
    return layout.rows, layout.cols, layout.operand_bits, layout.sparse


def _offsets(kept_per_block: Tensor, layout: Layout) -> Tensor:
    """Start of each block in the code stream, and its end."""
    sizes = map(layout.stream_bytes, kept_per_block.tolist())
    return torch.tensor([*itertools.accumulate(sizes, initial=0)], dtype=torch.int64)


def _no_offsets() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


def _empty_codes(layout: Layout, offsets: Tensor) -> tuple[Tensor, Tensor]:
    size = int(offsets[-1]) + SLACK_BYTES if layout.sparse else layout.dense_code_bytes
    codes, mask = empty_bytes(size), empty_bytes(layout.mask_bytes)
    if layout.sparse:
        codes[-SLACK_BYTES:] = 0
    return codes, mask


def _group_arrays(
    format: WeightFormat, layout: Layout, scales: Tensor | None, zeros: Tensor | None
) -> tuple[Tensor | None, Tensor | None, bool]:
    """Scales and zero points as streams, and whether they are given: if not, they are to be filled in."""
    if format.scaling is None:
        if scales is not None or zeros is not None:
            raise ValueError(f"{format} has no scales or zero points")
        return None, None, False
    dtype = SCALE_DTYPES[format.scaling.type]
    if scales is None:
        fill = E8M0_ONE if dtype == torch.uint8 else 1
        empty = own_copy(torch.full(layout.scale_shape, fill, dtype=dtype))
        points = torch.zeros(layout.scale_shape, dtype=torch.uint8) if format.has_zero_point else None
        return empty, None if points is None else own_copy(points), False
    _check_group_array("scales", scales, dtype, layout)
    if (zeros is not None) != format.has_zero_point:
        raise ValueError(f"{format} {'needs' if format.has_zero_point else 'has no'} zero points beside its scales")
    if zeros is not None:
        _check_group_array("zeros", zeros, torch.uint8, layout)
    streams = scale_stream(scales.cpu(), layout), zero_stream(zeros.cpu() if zeros is not None else None, layout)
    own_scales, own_zeros = (None if stream is None else own_copy(stream) for stream in streams)
    return own_scales, own_zeros, True


def _check_group_array(name: str, array: Tensor, dtype: torch.dtype, layout: Layout) -> None:
    shape = (layout.rows, layout.groups)
    if tuple(array.shape) != shape or array.dtype != dtype:
        raise ValueError(f"{name} must be {dtype} {list(shape)}, not {array.dtype} {list(array.shape)}")


def _check_mask(mask: Tensor | None, weight: Tensor) -> Tensor | None:
    if mask is None:
        return None
    if mask.shape != weight.shape:
        raise ValueError(f"the mask is {list(mask.shape)} where the matrix is {list(weight.shape)}")
    return mask.to(torch.bool).cpu().contiguous()


def _check_codes(quantized: Quantized, format: WeightFormat) -> Tensor:
    codes, dtype = quantized.codes, torch.int16 if format.element.bits == 16 else torch.uint8
    if codes.ndim != 2 or codes.dtype != dtype:
        raise ValueError(f"codes of {format} are {dtype} [neurons, inputs], not {codes.dtype} {list(codes.shape)}")
    if codes.numel() and dtype == torch.uint8 and int(codes.max()) >= format.element.codes:
        raise ValueError(f"{format.element} has codes 0 to {format.element.codes - 1}, not {int(codes.max())}")
    if format.scaling is not None and quantized.scales is None:
        raise ValueError(f"{format} needs scales beside its codes")
    return codes.cpu().contiguous()


def _matrix(
    format: WeightFormat,
    layout: Layout,
    codes: Tensor,
    mask: Tensor,
    offsets: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
) -> PackedMatrix:
    return PackedMatrix(
        format,
        layout.rows,
        layout.cols,
        layout.operand_bits,
        codes,
        mask if layout.sparse else None,
        offsets if layout.sparse else None,
        scales,
        zeros,
    )


def thread_count(threads: int | None) -> int:
    """`threads`, or as many as torch uses; at most MOST_THREADS."""
    if threads is None:
        return torch.get_num_threads()
    if threads < 1:
        raise ValueError(f"at least one thread is needed, not {threads}")
    return min(threads, MOST_THREADS)
