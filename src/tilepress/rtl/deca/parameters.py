"""Sizes of an element, and what its control registers hold."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amaranth import unsigned
from amaranth.lib import data, enum

from ...formats import BF16, WeightFormat, parse_weight
from ...formats.weight import ScaleType
from ...hardware.machine import TILE_WEIGHTS
from ...roofsurface import Deca
from ...roofsurface.decompressors import CODE_BITS

LINE_BITS = 512
VALUE_BITS = 16  # of bf16
ROW_WEIGHTS = LINE_BITS // VALUE_BITS
ROWS = TILE_WEIGHTS // ROW_WEIGHTS
NEURONS = 16
LOADERS = 2  # section 5.2
LDU_ENTRIES = 32  # table 3: 256 bytes of 8
SCALE_ENTRIES = 32  # table 3: 64 bytes of 2
SIGNIFICANDS: dict[ScaleType, int] = {"e8m0": 8, "bf16": 8, "fp16": 11, "fp32": 24}  # bits, the hidden one included


class Scale(enum.Enum, shape=3):  # type: ignore[call-arg]
    """The type of a tile's scales."""

    NONE = 0
    E8M0 = 1
    BF16 = 2
    FP16 = 3
    FP32 = 4


SCALES: dict[ScaleType, Any] = {
    "e8m0": Scale.E8M0,
    "bf16": Scale.BF16,
    "fp16": Scale.FP16,
    "fp32": Scale.FP32,
}
# What the control registers hold while tiles are in the element. `code_bits`: 1 to 8, or 16 for bf16.
Control = data.StructLayout({"code_bits": 5, "sparse": 1, "scale": Scale, "zero_points": 1})

ScaleQueue = data.ArrayLayout(VALUE_BITS, SCALE_ENTRIES)


@dataclass(frozen=True)
class Parameters:
    """`W`: weights that leave a stage in a cycle. `L`: tables of 256 values. `formats`: names of weight formats that
    can be set up at run time; what they do not need is left out. `sqq_lines`: lines of 64 bytes in a queue of codes,
    which holds all codes of a tile. `address_bits`: of a line's address. `epoch_bits`: a line must come before its
    loader has begun 2^epoch_bits tiles more."""

    W: int = 32
    L: int = 8
    formats: tuple[str, ...] = ("bf16", "bf8", "mxfp4")
    sqq_lines: int = 32  # table 3: 2 KB
    address_bits: int = 58
    epoch_bits: int = 4

    def __post_init__(self) -> None:
        _ = Deca(self.W, self.L)  # which checks them
        if self.L > self.W:
            raise ValueError(f"of more tables than W = {self.W} some are never read: L is at most that, not {self.L}")
        if not self.formats:
            raise ValueError("an element needs at least one format")
        for format in self._weights:
            if format.element.bits > CODE_BITS and format.element != BF16:
                raise ValueError(f"DECA takes codes of up to {CODE_BITS} bits, or bf16, not {format.element}")
        least = max(self.banks, self.code_bits[-1] + 1)
        if self.sqq_lines < least or self.sqq_lines & (self.sqq_lines - 1):
            raise ValueError(f"sqq_lines is a power of two of at least {least}, a tile's codes, not {self.sqq_lines}")
        for name in ("address_bits", "epoch_bits"):
            if not 1 <= getattr(self, name) <= 64:
                raise ValueError(f"{name} is 1 to 64, not {getattr(self, name)}")

    @cached_property
    def _weights(self) -> list[WeightFormat]:
        return [parse_weight(name) for name in self.formats]

    @cached_property
    def code_bits(self) -> list[int]:
        """Widths of codes, ascending."""
        return sorted({format.element.bits for format in self._weights})

    @cached_property
    def table_bits(self) -> list[int]:
        """Widths of codes that are looked up."""
        return [bits for bits in self.code_bits if bits <= CODE_BITS]

    @cached_property
    def scales(self) -> list[ScaleType]:
        """Types of scales."""
        return sorted({format.scaling.type for format in self._weights if format.scaling})

    @cached_property
    def has_zero_points(self) -> bool:
        return any(format.has_zero_point for format in self._weights)

    @property
    def scale_significand(self) -> int:
        """Bits that multipliers take of a scale."""
        return max((SIGNIFICANDS[name] for name in self.scales), default=SIGNIFICANDS["bf16"])

    @property
    def operations(self) -> int:
        """Vector operations (vOps) of a tile."""
        return TILE_WEIGHTS // self.W

    @property
    def window_bits(self) -> int:
        """Of the codes of one vOp, at most."""
        return self.W * self.code_bits[-1]

    @property
    def banks(self) -> int:
        """Of the queue of codes, each with one read port: a power of two, at least the lines that one vOp can need."""
        lines = -(-(self.window_bits - 1) // LINE_BITS) + 1
        return 1 << (lines - 1).bit_length()

    def lookups(self, bits: int) -> int:
        """Codes of `bits` that are looked up in a cycle, at most `W`."""
        return min(self.W, Deca(self.W, self.L).lookups(bits))

    @property
    def line_bits(self) -> int:
        """Of the number of a line in its tile."""
        return (LDU_ENTRIES - 1).bit_length()

    @cached_property
    def tag(self) -> data.StructLayout:
        """What a request carries and its line brings back."""
        return data.StructLayout({"line": self.line_bits, "epoch": self.epoch_bits})

    @cached_property
    def request(self) -> data.StructLayout:
        return data.StructLayout({"address": self.address_bits, "tag": self.tag})

    @cached_property
    def line(self) -> data.StructLayout:
        return data.StructLayout({"data": LINE_BITS, "tag": self.tag})

    @cached_property
    def tile(self) -> data.StructLayout:
        """A tile's metadata: addresses of its first lines of each kind; where in their first line codes begin
        (`first_bit`); how many lines have codes; which part of their line, of 16 neurons each, is the first group's
        scales or zero points; whether a second group of inputs begins in the middle of the tile."""
        addresses = dict.fromkeys(("mask", "scales", "zeros", "codes"), unsigned(self.address_bits))
        return data.StructLayout(
            addresses | {"first_bit": 9, "code_lines": 5, "scale_part": 2, "zero_part": 2, "two_groups": 1}
        )

    @cached_property
    def place(self) -> data.StructLayout:
        """Where a vOp belongs."""
        return data.StructLayout({"loader": 1, "operation": range(self.operations)})

    @cached_property
    def write(self) -> data.StructLayout:
        """A write into all tables at once: word `entry` of each."""
        return data.StructLayout({"entry": CODE_BITS, "value": VALUE_BITS})


def control_of(format: WeightFormat, sparse: bool) -> dict[str, Any]:
    """What to write into the control registers for tiles of a format."""
    scale = SCALES[format.scaling.type] if format.scaling else Scale.NONE
    return {
        "code_bits": format.element.bits,
        "sparse": int(sparse),
        "scale": scale,
        "zero_points": int(format.has_zero_point),
    }
