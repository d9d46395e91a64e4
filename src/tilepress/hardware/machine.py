"""What a machine is: cores, memory, vector and matrix units. Rates are a second, of the whole machine; where it has
several `sockets`, of one of them."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

TILE_WEIGHTS = 512  # weights of one matrix operation: 16 neurons × 32 inputs of 16 bits

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"is a power of two, not {value}")
    return value


PowerOfTwo = Annotated[Count, AfterValidator(_power_of_two)]


class MachineError(ValueError):
    """A description that says too little or too much; the message names the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Dram(_Part):
    """DRAM behind the memory controllers, in the words of JEDEC's standards; times in seconds, for reads.

    A channel is what has its own commands and data: a sub-channel of DDR5, a pseudo-channel of HBM. It has `width` data
    bits, `rate` transfers a second on each, two a clock, and reads `burst` transfers at a time. It has `bank_groups` of
    `banks` each; a bank has one row of `row` bytes open. `interleave`: bytes in a row that go to the same channel.
    `queue`: reads that its controller holds.

    `rcd` activate to read, `cl` read to data, `rp` precharge to activate, `ras` activate to precharge, `rc` activate to
    activate of a bank, `rtp` read to precharge, `ccd_s` and `ccd_l` read to read in different groups and in the same,
    `rrd_s` and `rrd_l` activate to activate likewise, `faw` the window that holds at most four activates. Each bank is
    refreshed every `refi`, for `rfc`: all banks of a channel at once, those of the same number in all groups
    (`same-bank`), or one by one (`single-bank`)."""

    channels: PowerOfTwo
    width: PowerOfTwo
    rate: Positive
    burst: PowerOfTwo
    bank_groups: PowerOfTwo
    banks: PowerOfTwo
    row: PowerOfTwo
    interleave: PowerOfTwo
    queue: Annotated[int, Field(ge=4)]
    rcd: Positive
    cl: Positive
    rp: Positive
    ras: Positive
    rc: Positive
    rtp: Positive
    ccd_s: Positive
    ccd_l: Positive
    rrd_s: Positive
    rrd_l: Positive
    faw: Positive
    refresh: Literal["all-bank", "same-bank", "single-bank"]
    rfc: Positive
    refi: Positive

    @property
    def burst_bytes(self) -> int:
        return self.burst * self.width // 8

    @property
    def bandwidth(self) -> float:
        """Bytes a second of all channels, if nothing but data went over them."""
        return self.channels * self.width * self.rate / 8

    @model_validator(mode="after")
    def _fits_together(self) -> "Dram":
        first_data = self.rcd + self.cl + self.burst / self.rate
        busy = self.rfc + self.rp + self.ras + self.rcd + self.rtp
        rules = {
            f"row is at least a burst of {self.burst_bytes} bytes": self.row >= self.burst_bytes,
            f"interleave is at least a burst of {self.burst_bytes} bytes": self.interleave >= self.burst_bytes,
            "there are at least two banks a channel: bank_groups times banks": self.bank_groups * self.banks > 1,
            "rc is at least ras": self.rc >= self.ras,
            "ccd_l is at least ccd_s": self.ccd_l >= self.ccd_s,
            "ccd_l is at most cl and the time of a burst": self.ccd_l <= self.cl + self.burst / self.rate,
            "rrd_l is at least rrd_s": self.rrd_l >= self.rrd_s,
            "rrd_l is at most faw": self.rrd_l <= self.faw,
            "faw is at most rcd, cl and the time of a burst": self.faw <= first_data,
            "refi is more than rfc, rp, ras, rcd and rtp together": self.refi > busy,
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))
        return self


class Memory(_Part):
    """`bandwidth`: bytes a second that can be reached; `capacity`: bytes. `dram`: its channels, banks and times, where
    they are known; `path_latency` then is the seconds from a miss in the second level of cache to the memory's
    controller and back, and `mesh_bandwidth` the bytes a second that get there and back at most."""

    bandwidth: Positive
    capacity: Positive | None = None
    dram: Dram | None = None
    path_latency: Positive | None = None
    mesh_bandwidth: Positive | None = None

    @model_validator(mode="after")
    def _has_a_path(self) -> "Memory":
        if self.dram is not None and self.path_latency is None:
            raise ValueError("dram needs path_latency")
        return self


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
    keeps outstanding at most. Of the last level: the bytes a cycle that a core reads from it and, where they are known,
    its bytes, its latency in nanoseconds and the misses that it keeps outstanding at most. `memory_latency`:
    nanoseconds from the second level to memory and back, where they are known."""

    line: Count = 64
    l2_latency: Positive
    l2_misses: Count
    llc_rate: Positive
    llc_capacity: Positive | None = None
    llc_latency: Positive | None = None
    llc_misses: Count | None = None
    memory_latency: Positive | None = None


class Sockets(_Part):
    """`count` sockets like the one described. `bandwidth`: bytes a second that come to one from all others. `latency`:
    seconds until one has read numbers that another wrote and announced."""

    count: Annotated[int, Field(ge=2)]
    bandwidth: Positive
    latency: Positive


class Machine(_Part):
    """`issue`: instructions a cycle that a core takes in. `overlap`: how much of the shorter of the times that memory
    and a core take hides behind the longer; 1 is all of it. `sockets`: if there are several; all else is of one.

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
    sockets: Sockets | None = None
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
