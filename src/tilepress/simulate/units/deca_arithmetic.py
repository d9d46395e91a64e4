"""What DECA computes with codes: looked up in tables, expanded by a bitmask, scaled.

Tables hold bf16 values and multipliers give bf16, so a tile is `tiles.unpack` rounded to bf16, to the bit, for every
format whose values bf16 holds; of other tables (nf4), the product with the rounded value. DECA as published has no zero
points: they are subtracted before scaling here, as one adder per lane would.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from ...formats import BF16, Element
from ...formats.tensors import decode_table
from ...roofsurface.decompressors import SUB_TABLES, TABLE_ENTRIES, table_lookups
from .halves import Integers

VALUE_BITS = 16  # of bf16
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


def check_element(element: Element) -> None:
    """Refuse codes that neither the tables nor the bf16 bypass can take."""
    if element.bits > 8 and element != BF16:
        raise ValueError(f"DECA takes codes of up to 8 bits, or bf16, not {element}")


def fill_tables(element: Element) -> Floats:
    """[4, 64]: one table as it is filled for a format: its values as bf16, as often as they fit. Of less than six bits
    some entries are never read."""
    values = _bf16(np.asarray(decode_table(element)))
    part = np.zeros(TABLE_ENTRIES // table_lookups(element.bits), np.float32)
    part[: values.size] = values
    return np.tile(part, table_lookups(element.bits)).reshape(SUB_TABLES, -1)


def look_up(codes: Integers, element: Element, table: Floats | None) -> Floats:
    """Values of codes that are looked up together; narrow ones in all parts of a table. bf16 needs no table."""
    if table is None:
        patterns = torch.from_numpy(codes.astype(np.int16)).view(torch.bfloat16)
        return np.asarray(patterns.to(torch.float32).numpy())
    in_parallel = table_lookups(element.bits)
    part = np.arange(codes.size) % in_parallel
    return np.asarray(table.reshape(-1)[codes + part * (TABLE_ENTRIES // in_parallel)])


def expand(values: Floats, bits: Bools) -> Floats:
    """The crossbar: value n goes to the lane of the n-th set bit, as a parallel prefix sum finds it; else zeros."""
    index = np.cumsum(bits) - 1
    return np.where(bits, values[np.maximum(index, 0)] if values.size else 0, 0).astype(np.float32)


def scale(dense: Floats, bits: Bools, scales: Floats, zeros: Floats) -> Floats:
    """(value - zero) · scale, rounded once to bf16; zeros where no bit is set."""
    return _bf16(np.where(bits, (dense - zeros) * scales, np.float32(0)))


def holds_values(element: Element) -> bool:
    """Whether bf16 holds every value of a format, so that `tiles.unpack` is what the element puts out."""
    if element.bits > 8:
        return element == BF16
    values = np.asarray(decode_table(element))
    return bool(((_bf16(values) == values) | np.isnan(values)).all())


def _bf16(values: Floats) -> Floats:
    return np.asarray(torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16).to(torch.float32).numpy())
