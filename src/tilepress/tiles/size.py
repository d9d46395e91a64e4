"""Bytes of a packed matrix, without packing it."""

from ..formats import WeightFormat
from ..formats.tensors import SCALE_DTYPES
from .layout import BLOCK_NEURONS, SLACK_BYTES, Layout
from .matrix import layout_of


def packed_bytes(format: WeightFormat, rows: int, cols: int, density: float = 1.0, *, even: bool = True) -> int:
    """`PackedMatrix.nbytes` of a matrix [rows, cols], dense at density 1.

    even: each row keeps round(density × cols) weights. Else the matrix keeps round(density × rows × cols), wherever
    they lie, and the result is the most that may take: at most one byte more per block of 16 rows.
    """
    layout = layout_of(format, rows, cols, format.operand_bits, sparse=density < 1)
    return _code_bytes(layout, density, even) + _group_bytes(format, layout)


def _code_bytes(layout: Layout, density: float, even: bool) -> int:
    """Of codes, mask and offsets."""
    if not layout.sparse:
        return layout.dense_code_bytes
    offsets = (layout.blocks + 1) * 8
    codes = _even_bytes(layout, density) if even else _most_bytes(layout, density)
    return codes + SLACK_BYTES + layout.mask_bytes + offsets


def _even_bytes(layout: Layout, density: float) -> int:
    kept = round(density * layout.cols)
    whole, rest = divmod(layout.rows, BLOCK_NEURONS)
    return whole * layout.stream_bytes(BLOCK_NEURONS * kept) + layout.stream_bytes(rest * kept)


def _most_bytes(layout: Layout, density: float) -> int:
    """Each block may leave up to seven bits of its last byte."""
    kept = round(density * layout.rows * layout.cols)
    return (kept * layout.bits + 7 * layout.blocks) // 8


def _group_bytes(format: WeightFormat, layout: Layout) -> int:
    """Of scales and zero points."""
    if format.scaling is None:
        return 0
    groups = layout.blocks * layout.groups * BLOCK_NEURONS
    return groups * (SCALE_DTYPES[format.scaling.type].itemsize + (1 if format.has_zero_point else 0))
