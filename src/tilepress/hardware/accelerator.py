"""What an accelerator is: an array of units that multiply groups of numbers, its buffers, and its way to memory."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from . import synthesised
from .machine import Count, MachineError, Positive, _constants, _Part
from .technology import area_scale, energy_scale

Kind = Literal["fp16", "bfp", "int8"]
Other = Literal["int4", "int8", "fp16", "bfp"]
Dataflow = Literal["column-major", "row-major", "best"]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MM2 = 1e-6  # µm² to mm²


class Dram(_Part):
    """`bandwidth`: bytes a second; `energy`: pJ a bit."""

    bandwidth: Positive
    energy: Positive


class Array(_Part):
    """`rows` × `columns` units, each of which sums the products of `group` pairs."""

    rows: Count
    columns: Count
    group: Count


class ByMantissa(_Part):
    """What takes `fixed` + `per_bit` · m with magnitudes of m bits."""

    fixed: NotNegative = 0
    per_bit: NotNegative = 0

    def of(self, mantissa: int) -> float:
        return self.fixed + self.per_bit * mantissa

    @model_validator(mode="after")
    def _takes_some(self) -> "ByMantissa":
        if self.fixed + self.per_bit <= 0:
            raise ValueError("that cannot take nothing: give fixed, per_bit or both")
        return self


class Cycles(ByMantissa):
    """Of one group."""


class Mode(_Part):
    """A pair of operands that a unit multiplies: activations of a kind, with magnitudes of some bits if they are block
    floating point, and weights (int4, int8) or other activations (fp16, bfp with `other_mantissa` bits)."""

    activations: Kind
    other: Other
    mantissas: tuple[Count, Count] | None = None
    other_mantissa: Count | None = None
    cycles: Cycles

    @model_validator(mode="after")
    def _has_mantissas(self) -> "Mode":
        if (self.activations == "bfp") != (self.mantissas is not None):
            raise ValueError("mantissas, from and to, belong to activations of kind bfp")
        if (self.other == "bfp") != (self.other_mantissa is not None):
            raise ValueError("other_mantissa belongs to others of kind bfp")
        return self

    def takes(self, activations: str, mantissa: int, other: str, other_mantissa: int) -> bool:
        if (activations, other) != (self.activations, self.other):
            return False
        low, high = self.mantissas or (0, 0)
        fits = self.mantissas is None or low <= mantissa <= high
        return fits and (self.other_mantissa is None or other_mantissa <= self.other_mantissa)


class Rtl(_Part):
    """A `unit` of `tilepress rtl` with these `settings`, as it was synthesised: `count` of them, for area. Energy is of
    a product or value, whatever the count."""

    unit: str
    settings: dict[str, int | str] = Field(default_factory=dict)
    count: Positive = 1

    @model_validator(mode="after")
    def _was_synthesised(self) -> "Rtl":
        synthesised.cost(self.unit, self.settings)
        return self

    def area_at(self, node: float) -> float:
        """mm² of all of them."""
        return self.count * synthesised.cost(self.unit, self.settings).area_at(node)


class Given(_Part):
    """Costs from elsewhere, at `node` nm and `voltage`: `area` in µm², `energy` in pJ of a product or value."""

    node: Positive
    voltage: Positive
    area: Positive
    energy: ByMantissa

    def area_at(self, node: float) -> float:
        """mm²."""
        return self.area * MM2 * area_scale(node) / area_scale(self.node)

    def energy_at(self, mantissa: int, node: float, voltage: float) -> float:
        """pJ."""
        return self.energy.of(mantissa) * energy_scale(node, voltage) / energy_scale(self.node, self.voltage)


class Logic(_Part):
    """What has area and energy: of our `rtl`, or `given`."""

    rtl: Rtl | None = None
    given: Given | None = None

    @property
    def costs(self) -> Rtl | Given:
        return self.rtl or self.given  # type: ignore[return-value]  # one of them is there: _has_costs

    @model_validator(mode="after")
    def _has_costs(self) -> "Logic":
        if (self.rtl is None) == (self.given is None):
            raise ValueError("area and energy come from rtl or are given: write one of the two")
        return self


class Unit(Logic):
    """One unit of the array."""


class Buffers(_Part):
    """Bytes on chip."""

    activations: Count
    weights: Count


class Tile(_Part):
    """Rows of activations and columns of weights that stay on chip while the others pass by."""

    rows: Count
    columns: Count


class Converter(Logic):
    """Rounds `values` outputs at a time to block floating point, or to INT8, in so many cycles; while the array goes on
    if it is `overlapped`. Its area is that of all of them, its energy of one value."""

    values: Count
    cycles: Cycles
    overlapped: bool = True


class Offsets(_Part):
    """What finds offsets of keys' channels, and what takes them from keys."""

    generator: Rtl
    subtractor: Rtl

    def area_at(self, node: float) -> float:
        """mm²."""
        return self.generator.area_at(node) + self.subtractor.area_at(node)


class Accelerator(_Part):
    """`stores`: what activations lie in memory as: fp16, or bfp as they are computed with. `kv`: the format of keys and
    values. `vector`: operations a cycle on FP16 outputs. `auxiliary`: an FP16 array beside the array that takes what no
    mode does, with this share of the array's area.

    `sources`: dotted name of a field or of the part it is in → where its value comes from. All constants have one.
    """

    name: str
    title: str
    node: Positive
    voltage: Positive
    frequency: Positive
    memory: Dram
    array: Array
    modes: Annotated[tuple[Mode, ...], Field(min_length=1)]
    unit: Unit
    stores: Kind
    kv: str = "fp16"
    buffers: Buffers
    tile: Tile
    dataflow: Dataflow
    vector: Count
    converter: Converter | None = None
    offsets: Offsets | None = None
    auxiliary: Positive | None = None
    sources: dict[str, str]

    @model_validator(mode="after")
    def _has_sources(self) -> "Accelerator":
        fields = self.model_dump(exclude={"name", "title", "sources", "kv"}, exclude_unset=True)
        for field in _constants(fields):
            if not any(field == known or field.startswith(known + ".") for known in self.sources):
                raise ValueError(f"nothing says where {field} comes from: add it to sources")
        return self

    @property
    def units(self) -> int:
        return self.array.rows * self.array.columns

    @property
    def attends(self) -> bool:
        """Whether the array itself multiplies activations with activations."""
        return any(mode.other in ("fp16", "bfp") for mode in self.modes)

    def mode(self, activations: str, mantissa: int, other: str, other_mantissa: int = 0) -> Mode:
        for mode in self.modes:
            if mode.takes(activations, mantissa, other, other_mantissa):
                return mode
        pairs = ", ".join(_pair(mode) for mode in self.modes)
        asked = f"{_operand(activations, mantissa)} × {_operand(other, other_mantissa)}"
        raise MachineError(f"{self.name} cannot multiply {asked}; it multiplies {pairs}")

    def changed(self, **fields: Any) -> "Accelerator":
        """The same accelerator with other constants, parts as mappings of what changes in them; the caller is the
        source."""
        parts = self.model_dump(exclude_unset=True)
        for name, value in fields.items():
            parts[name] = {**(parts.get(name) or {}), **value} if isinstance(value, dict) else value
        sources = {**self.sources, **{name: "given" for name in fields}}
        return Accelerator.model_validate({**parts, "sources": sources})


def _pair(mode: Mode) -> str:
    low, high = mode.mantissas or (0, 0)
    range_ = f"{low}" if low == high else f"{low}…{high}"
    first = f"bfp m{range_}" if mode.mantissas else mode.activations
    return f"{first} × {_operand(mode.other, mode.other_mantissa or 0)}"


def _operand(kind: str, mantissa: int) -> str:
    return f"bfp m{mantissa}" if kind == "bfp" else kind
