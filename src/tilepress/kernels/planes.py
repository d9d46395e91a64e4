"""Tensors as bit planes of block floating point, packed and unpacked by native code.

`formats.bfp` is the specification: the planes are those of `pack_planes(encode(x, format))` along the last axis, and
unpacking gives what `decode` gives in float16, which every encoded value fits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .. import _native
from ..formats import BFP, FormatError, parse
from ..formats.bfp import MAX_FIELD, Nonfinite
from ..tiles.native import REAL_NAMES, empty_bytes, raw_bytes
from ..tiles.packing import thread_count

GROUP = 64  # values whose bits make a word
FIELD_BITS = 5


@dataclass(frozen=True, eq=False)
class PackedPlanes:
    """A tensor in 1 + m + 5/64 bits a value; a row that does not fill its last group pays for the whole group.

    shape: of the tensor that was packed, grouped along its last axis.
    planes: uint8 [groups, 1 + m, 8], row after row; of each group the signs, then magnitude bits from the most
        significant on. Value i of a group has bit i % 8 of byte i // 8.
    exponents: uint8 [ceil(5 * groups / 8)], a stream of five bits a group, the first in the lowest bits.
    overflowed: how many values did not fit FP16 and were saturated.
    """

    format: BFP
    shape: tuple[int, ...]
    planes: Tensor
    exponents: Tensor
    overflowed: int = 0

    def __post_init__(self) -> None:
        _check_group(self.format)
        groups = _groups(self.shape)
        _check_bytes("planes", self.planes, (groups, 1 + self.format.mantissa, GROUP // 8))
        _check_bytes("exponents", self.exponents, (-(-groups * FIELD_BITS // 8),))

    @property
    def nbytes(self) -> int:
        """Bytes of planes and exponents."""
        return self.planes.nbytes + self.exponents.nbytes


def pack_planes(
    x: Tensor, format: str | BFP, *, nonfinite: Nonfinite = "error", threads: int | None = None
) -> PackedPlanes:
    """Round a float16, bfloat16 or float32 tensor [..., n] to block floating point and store it as bit planes.

    As `formats.bfp.encode` does: what would round to infinity in FP16 becomes ±65504 and is counted; infinities and
    NaN are refused or, with nonfinite="saturate", become ±65504 and +0 and are counted too.
    """
    format = _parse(format)
    _check_values(x, nonfinite)
    x = x.detach().contiguous()
    groups = _groups(tuple(x.shape))
    planes = empty_bytes(groups * (1 + format.mantissa) * GROUP // 8)
    exponents = empty_bytes(-(-groups * FIELD_BITS // 8))
    sides = _sides(tuple(x.shape))
    overflowed, bad = _native.pack_planes(
        *sides, format.mantissa, raw_bytes(x), REAL_NAMES[x.dtype], planes, exponents, thread_count(threads)
    )
    if bad and nonfinite == "error":
        raise ValueError(
            f"{bad} of {x.numel()} values are infinite or NaN, which BFP cannot hold; "
            'repair the input, or pass nonfinite="saturate" to store ±65504 for infinities and 0 for NaN'
        )
    return PackedPlanes(
        format, tuple(x.shape), planes.view(groups, 1 + format.mantissa, GROUP // 8), exponents, overflowed
    )


def unpack_planes(packed: PackedPlanes, *, threads: int | None = None) -> Tensor:
    """The values as float16 in their own shape; ValueError where the planes cannot have come from `pack_planes`."""
    _check_padding(packed)
    values = empty_bytes(2 * torch.Size(packed.shape).numel())
    bad = _native.unpack_planes(
        *_sides(packed.shape),
        packed.format.mantissa,
        raw_bytes(packed.planes),
        raw_bytes(packed.exponents),
        values,
        thread_count(threads),
    )
    if bad:
        raise ValueError(f"{bad} exponents lie above {MAX_FIELD}, FP16's largest; the data is damaged")
    return values.view(torch.float16).view(packed.shape)


def _parse(format: str | BFP) -> BFP:
    parsed = parse(format) if isinstance(format, str) else format
    if not isinstance(parsed, BFP):
        raise FormatError(f"bit planes hold block floating point, bfp:g{GROUP}:m1 to m16, not {format}")
    _check_group(parsed)
    return parsed


def _check_group(format: BFP) -> None:
    if format.group != GROUP:
        raise FormatError(
            f"bit planes are kept in groups of {GROUP} values, not {format.group}; formats.bfp has others"
        )


def _check_values(x: Tensor, nonfinite: str) -> None:
    if x.dtype not in REAL_NAMES or not x.is_cpu:
        raise TypeError(f"values are float32, bfloat16 or float16 on the CPU, not {x.dtype} on {x.device}")
    if x.ndim == 0:
        raise ValueError("a 0-d tensor has no axis to group along; reshape it to [1]")
    if nonfinite not in ("error", "saturate"):
        raise ValueError(f'nonfinite must be "error" or "saturate", got {nonfinite!r}')


def _check_bytes(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    if x.dtype != torch.uint8 or not x.is_cpu or not x.is_contiguous():
        raise TypeError(f"{name} must be uint8 on the CPU and contiguous, got {x.dtype} on {x.device}")
    if tuple(x.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(x.shape)}")


def _check_padding(packed: PackedPlanes) -> None:
    """Refuse bits beyond the last value of a row, and beyond the last exponent."""
    rows, values = _sides(packed.shape)
    if values % GROUP and rows:
        beyond = (-1 << values % GROUP) % (1 << GROUP)
        mask = torch.tensor(list(beyond.to_bytes(GROUP // 8, "little")), dtype=torch.uint8)
        if bool((packed.planes.view(rows, -1, *packed.planes.shape[1:])[:, -1] & mask).any()):
            raise ValueError("bits are set beyond the last value of a ragged group; the data is damaged")
    spare = packed.exponents.numel() * 8 - _groups(packed.shape) * FIELD_BITS
    if spare and bool(packed.exponents[-1] >> (8 - spare)):
        raise ValueError("bits are set beyond the last exponent; the data is damaged")


def _sides(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows, and values of each."""
    return torch.Size(shape[:-1]).numel(), shape[-1]


def _groups(shape: tuple[int, ...]) -> int:
    if not shape or min(shape) < 0:
        raise ValueError(f"planes have a shape of at least one side, none negative, not {shape}")
    rows, values = _sides(shape)
    return rows * -(-values // GROUP)
