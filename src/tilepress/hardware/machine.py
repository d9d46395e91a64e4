"""What a machine is: cores, memory, vector and matrix units. Rates are of the whole machine, a second."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

TILE_WEIGHTS = 512  # weights of one matrix operation: 16 neurons × 32 inputs of 16 bits

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]


class MachineError(ValueError):
    """A description that says too little or too much; the message names the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Memory(_Part):
    """`bandwidth`: bytes a second that can be reached; `capacity`: bytes."""

    bandwidth: Positive
    capacity: Positive | None = None


class Vector(_Part):
    """`units` a core, each an operation of `bits` a cycle; one and a half are three of half the bits."""

    units: Positive
    bits: Count


class Matrix(_Part):
    """What multiplies tiles of 16 neurons × 32 inputs with up to `rows` rows of activations: a matrix unit, or dot
    products of vectors, one row at a time. Either `cycles` a core between two such operations, or `flops`,
    multiply-adds a second of the whole machine."""

    rows: Count = 16
    cycles: Positive | None = None
    flops: Positive | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Matrix":
        if (self.cycles is None) == (self.flops is None):
            raise ValueError("give either cycles or flops")
        return self


class Caches(_Part):
    """The way from memory to a core: bytes of a `line`, the second level's latency in cycles and the misses that it
    keeps outstanding at most, the bytes a cycle that a core reads from the last level, and the cycles from the second
    level to memory and back, where they are known."""

    line: Count = 64
    l2_latency: Positive
    l2_misses: Count
    llc_rate: Positive
    memory_latency: Positive | None = None


class Machine(_Part):
    """`issue`: instructions a cycle that a core takes in. `overlap`: how much of the shorter of the times that memory
    and a core take hides behind the longer; 1 is all of it.

    `sources`: dotted name of a field or of the part it is in → where its value comes from. All constants have one.
    """

    name: str
    title: str
    cores: Count = 1
    frequency: Positive = 1e9
    issue: Positive | None = None
    overlap: Annotated[float, Field(ge=0, le=1)] = 1.0
    memory: Memory
    vector: Vector | None = None
    matrix: Matrix | None = None
    caches: Caches | None = None
    sources: dict[str, str]

    @model_validator(mode="after")
    def _has_sources(self) -> "Machine":
        for field in _constants(self.model_dump(exclude={"name", "title", "sources"}, exclude_unset=True)):
            if not any(field == known or field.startswith(known + ".") for known in self.sources):
                raise ValueError(f"nothing says where {field} comes from: add it to sources")
        return self

    @property
    def cycles_per_second(self) -> float:
        """Of all cores together."""
        return self.cores * self.frequency

    @property
    def vector_rate(self) -> float:
        """VOS: vector operations a second."""
        if self.vector is None:
            raise MachineError(f"{self.name} has no vector units: add vector to its description")
        return self.cycles_per_second * self.vector.units

    @property
    def matrix_rate(self) -> float:
        """MOS: matrix operations a second."""
        if self.matrix is None:
            raise MachineError(f"{self.name} has no matrix unit: add matrix to its description")
        if self.matrix.flops is not None:
            return self.matrix.flops / (TILE_WEIGHTS * self.matrix.rows)
        assert self.matrix.cycles is not None
        return self.cycles_per_second / self.matrix.cycles

    def changed(self, **fields: Any) -> "Machine":
        """The same machine with other constants, `memory` and the other parts as mappings of what changes in them; the
        caller is the source."""
        parts = self.model_dump(exclude_unset=True)
        for name, value in fields.items():
            parts[name] = {**(parts.get(name) or {}), **value} if isinstance(value, dict) else value
        sources = {**self.sources, **{name: "given" for name in fields}}
        return Machine.model_validate({**parts, "sources": sources})


def _constants(part: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _constants(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name
