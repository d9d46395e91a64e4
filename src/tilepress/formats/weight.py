"""A weight format: an element format, and the scale that groups of weights share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from .element import Element
from .floats import BF8, BF16, E2M1, E2M3, E3M2, E4M3
from .integers import Integer

ZERO_POINT_BITS = 8  # see `zero_points`

ScaleType = Literal["e8m0", "bf16", "fp16", "fp32"]
SCALE_TYPES: tuple[ScaleType, ...] = get_args(ScaleType)
SCALE_BITS: dict[ScaleType, int] = {"e8m0": 8, "bf16": 16, "fp16": 16, "fp32": 32}
GROUP_STEP = 16


@dataclass(frozen=True)
class Scaling:
    """One scale per `group` consecutive inputs of a neuron; `None` is the whole row."""

    group: int | None
    type: ScaleType

    def __post_init__(self) -> None:
        whole = self.group is None or (type(self.group) is int and self.group > 0 and self.group % GROUP_STEP == 0)
        if not whole:
            raise ValueError(f"a group is a positive multiple of {GROUP_STEP} inputs, not {self.group}")
        if self.type not in SCALE_TYPES:
            raise ValueError(f"a scale is one of {', '.join(SCALE_TYPES)}, not {self.type!r}")

    def groups(self, inputs: int) -> int:
        """Number of groups in a row of `inputs`; the last may be shorter."""
        return 1 if self.group is None else -(-inputs // self.group)

    def group_inputs(self, inputs: int) -> int:
        """Inputs in a whole group of a row of `inputs`."""
        return inputs if self.group is None else self.group


@dataclass(frozen=True)
class WeightFormat:
    """`weight = (decode(code) - zero) * scale`: zero points with unsigned integers only, scales where given.

    See `zero_points` for what a zero point is.
    """

    element: Element
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if self.scaling is None and isinstance(self.element, Integer):
            raise ValueError(f"{self.element} needs a scale: {self.element}:g32 or {self.element}:row, say")

    def __str__(self) -> str:
        if self in MX_NAMES:
            return MX_NAMES[self]
        if self.scaling is None:
            return self.element.name
        group = "row" if self.scaling.group is None else f"g{self.scaling.group}"
        default = default_scale_type(self.element, self.scaling.group)
        suffix = "" if self.scaling.type == default else f":{self.scaling.type}"
        return f"{self.element.name}:{group}{suffix}"

    @property
    def has_zero_point(self) -> bool:
        return isinstance(self.element, Integer) and not self.element.signed

    @cached_property
    def operand_bits(self) -> int:
        return self.element.operand_bits

    @property
    def group_bits(self) -> int:
        """Bits that a group stores beside its codes: scale and zero point."""
        if self.scaling is None:
            return 0
        return SCALE_BITS[self.scaling.type] + (ZERO_POINT_BITS if self.has_zero_point else 0)

    def bits_per_weight(self, density: float | None = None, inputs: int | None = None) -> float:
        """Storage of one weight: Q bits dense, Q·d + 1 with a bitmask (`density` given), and its share of the
        scale. A whole-row scale is shared by `inputs` weights, and costs nothing when that is not given."""
        bits = float(self.element.bits) if density is None else self.element.bits * density + 1
        if self.scaling is None:
            return bits
        group = self.scaling.group if self.scaling.group is not None else inputs
        return bits + (self.group_bits / group if group else 0.0)

    def compression_factor(self, density: float | None = None, inputs: int | None = None) -> float:
        """How many times smaller than BF16."""
        return BF16.bits / self.bits_per_weight(density, inputs)


def default_scale_type(element: Element, group: int | None) -> ScaleType:
    """fp32 where a scale serves a whole row and costs nothing; fp16 beside a zero point, as GPTQ and AWQ
    checkpoints carry it, so that importing one is exact; else bf16."""
    if group is None:
        return "fp32"
    return "fp16" if isinstance(element, Integer) and not element.signed else "bf16"


def _mx(element: Element) -> WeightFormat:
    return WeightFormat(element, Scaling(32, "e8m0"))


# OCP Microscaling Formats v1.0, table 1. E2M3 and E4M3 are the variants of choice for weights, so they have the
# short names.
MX_NAMES: dict[WeightFormat, str] = {
    _mx(E2M1): "mxfp4",
    _mx(E2M3): "mxfp6",
    _mx(E3M2): "mxfp6-e3m2",
    _mx(E4M3): "mxfp8",
    _mx(BF8): "mxfp8-e5m2",
}
