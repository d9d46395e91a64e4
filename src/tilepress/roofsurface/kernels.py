"""What Tilepress' own kernels cost for 512 weights, counted in compiled code: the one home of these counts.

How to count again is said in docs/kernels.md. A vector operation is any instruction on vector or mask registers but
pure loads and stores. Counts are of one row of activations, those with AMX of sixteen.
"""

from dataclasses import dataclass, replace

import torch

from ..formats import WeightFormat, parse
from ..formats.bfp import BFP
from ..hardware import Machine, MachineError
from .decompressors import tile_bytes
from .domains import FRONT_END, MATRIX, MEMORY, VECTOR

INTEGER, FLOATS, HALVES, PAIRS, TILES, GROUPS, INTEGER_TILES = (
    "linear_f32_i8_int",
    "linear_f32_f32_any",
    "linear_f32_f16_any",
    "linear_f32_bf16_any",
    "linear_f32_bf16_any_tiles",
    "linear_f32_bf16_any_groups",
    "linear_f32_i8_int_tiles",
)


@dataclass(frozen=True)
class Counted:
    """One kernel with one kind of weights and activations: float, bf16 (where float32 takes more), int8, bfp7 (at most
    7 bits) or bfp8.

    `operations` are vector operations, `moves` those of them that only move, `instructions` all (None where paths
    differ). `per_density`: what is added to operations and instructions times the density. `matrix`: operations of the
    matrix unit for sixteen rows.
    """

    kernel: str
    weights: str
    sparse: bool
    activations: str
    operations: float
    moves: int | None = None
    loads: float | None = None
    instructions: float | None = None
    per_density: tuple[float, float] = (0.0, 0.0)
    matrix: float | None = None

    @property
    def isa(self) -> str:
        return self.kernel.partition("/")[2]

    @property
    def rows(self) -> int:
        """Of activations, that it was counted with."""
        return 1 if self.matrix is None else 16


DENSE_VNNI = (  # compiled alike with VBMI2 and without
    Counted(f"{INTEGER}/avx512_vnni", "int4:g32", False, "int8", 33, 4, 18, 73),
    Counted(f"{INTEGER}/avx512_vnni", "int4:g32", False, "bfp7", 34, 4, 19, 74),
    Counted(f"{INTEGER}/avx512_vnni", "int4:g32", False, "bfp8", 43, 4, 27, 92),
    Counted(f"{INTEGER}/avx512_vnni", "int4:g32", False, "float", 57, 7, 35, 115),
    Counted(f"{INTEGER}/avx512_vnni", "int4:g32", False, "bf16", 43, 4, 27, 92),
    Counted(f"{INTEGER}/avx512_vnni", "int8:row", False, "int8", 32, 16, 16, 64),
)
COUNTS = (
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", False, "int8", 76, 0, 21, 117),
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", False, "bfp7", 76, 0, 21, 117),
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", False, "bfp8", 108, 0, 20, 149),
    Counted(f"{INTEGER}/neon_dotprod", "int8:row", False, "int8", 32, 0, 34, 82),
    Counted(f"{INTEGER}/neon_dotprod", "int8:row", True, "int8", 120, 16, 98, 424),
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", True, "int8", 144, 20, 117, 498.5, (64, 145)),
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", False, "float", 172, 12, 26, 237),
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", True, "float", 238, 29, 108, 597, (128, 296)),
    Counted(f"{INTEGER}/neon_dotprod", "int4:g32", False, "bf16", 128, 7, 23, 187),
    Counted(f"{INTEGER}/neon_dotprod", "mxfp4", False, "float", 242, 12, 24, 302),
    Counted(f"{INTEGER}/neon_dotprod", "mxfp4", False, "bf16", 198, 7, 22, 255),
    Counted(f"{INTEGER}/neon_dotprod", "mxfp4", True, "float", 292, 29, 106, 643, (128, 296)),
    Counted(f"{FLOATS}/neon_dotprod", "bf16", False, "float", 273, 8, 100, 493),
    Counted(f"{FLOATS}/neon_dotprod", "bf16", True, "float", 372, 26, 232, 1084),
    Counted(f"{HALVES}/neon_dotprod", "fp16", False, "bf16", 109, 25, 53, 174),
    Counted(f"{HALVES}/neon_dotprod", "fp16", True, "bf16", 208, 43, 185, 764),
    Counted(f"{HALVES}/neon_dotprod", "bf8", False, "bf16", 172, 24, 49, 233),
    Counted(f"{HALVES}/neon_dotprod", "bf8", True, "bf16", 271, 42, 149, 663),
    Counted(f"{HALVES}/neon_dotprod", "e4m3", False, "bf16", 238, 26, 49, 299),
    Counted(f"{HALVES}/neon_dotprod", "e4m3", True, "bf16", 337, 44, 149, 728),
    *DENSE_VNNI,
    *(replace(one, kernel=f"{INTEGER}/avx512_vbmi2") for one in DENSE_VNNI),
    Counted(f"{INTEGER}/avx512_vnni", "int8:row", True, "int8", 120, 16, 187, 415),
    Counted(f"{INTEGER}/avx512_vnni", "int4:g32", True, "int8", 121, 7, 195, 428, (64, 160)),
    Counted(f"{INTEGER}/avx512_vnni", "mxfp4", False, "float", 71, 7, 31, 121),
    Counted(f"{INTEGER}/avx512_vnni", "mxfp4", False, "bf16", 58, 5, 23, 99),
    Counted(f"{INTEGER}/avx512_vbmi2", "int8:row", True, "int8", 30, 6, 24, 104),
    Counted(f"{INTEGER}/avx512_vbmi2", "int8:row", False, "bf16", 39, 4, 27, 92),
    Counted(f"{INTEGER}/avx512_vbmi2", "mxfp4", False, "float", 63, 7, 31, 113),
    Counted(f"{INTEGER}/avx512_vbmi2", "mxfp4", False, "bf16", 50, 5, 23, 91),
    Counted(f"{INTEGER}/avx512_vbmi2", "mxfp4", True, "float", 73, 17, 43, None, (32, 0)),
    Counted(f"{INTEGER}/avx512_vbmi2", "mxfp4", True, "bf16", 60, 15, 35, None, (32, 0)),
    Counted(f"{INTEGER}/avx512_vbmi2", "int4:g32", True, "int8", 41, 16, 30, None, (32, 0)),
    Counted(f"{PAIRS}/avx512_bf16", "bf16", False, "float", 16, 0, 32, 100),
    Counted(f"{PAIRS}/avx512_bf16", "bf16", True, "float", 32, 0, 48, 180),
    Counted(f"{PAIRS}/avx512_bf16", "e4m3", False, "float", 80, 16, 24, 124),
    Counted(f"{HALVES}/amx", "fp16", False, "bf16", 22, 0, 33, 81),
    Counted(f"{HALVES}/amx", "fp16", True, "bf16", 38, 0, 49, 177),
    Counted(f"{HALVES}/amx", "bf8", False, "bf16", 50, 2, 33, 85),
    Counted(f"{HALVES}/amx", "bf8", True, "bf16", 57, 1, 33, 148),
    Counted(f"{HALVES}/amx", "e4m3", False, "bf16", 68, 4, 26, 112),
    Counted(f"{HALVES}/amx", "e4m3", True, "bf16", 73, 1, 33, 164),
    Counted(f"{HALVES}/amx", "nf4:g64", False, "bf16", 73.5, 1, 26.5, 120.5),
    Counted(f"{TILES}/amx", "mxfp4", False, "float", 53.1, None, 14, matrix=1),
    Counted(f"{TILES}/amx", "int4:g32", False, "float", 162.1, None, 65, matrix=1),
    Counted(f"{GROUPS}/amx", "int4:g32", False, "float", 51, None, 49, matrix=1),
    Counted(f"{GROUPS}/amx", "nf4:g64", False, "float", 41.5, None, 29, matrix=1),
    Counted(f"{TILES}/amx", "bf16", False, "float", 0.1, 0, 16, matrix=1),
    Counted(f"{TILES}/amx", "bf16", True, "float", 17.1, None, 32, matrix=1),
    Counted(f"{TILES}/amx", "bf8", False, "float", 63.1, 14, 13, matrix=1),
    Counted(f"{TILES}/amx", "bf8", True, "float", 81.1, 21, 22, matrix=1),
    Counted(f"{TILES}/amx", "e4m3", False, "float", 63.1, 14, 13, matrix=1),
    Counted(f"{TILES}/amx", "int8:row", False, "float", 101.1, 37, 17, matrix=1),
    Counted(f"{INTEGER_TILES}/amx", "int8:row", False, "int8", 0.8, 0, 8, matrix=0.5),
    Counted(f"{INTEGER_TILES}/amx", "int8:row", True, "int8", 16.8, None, 10, matrix=0.5),
    Counted(f"{INTEGER_TILES}/amx", "int4:g32", False, "int8", 42, None, 21, matrix=1),
)


@dataclass(frozen=True)
class Kernel:
    """A kernel of ours as a decompressor. `name`: operation/instruction set, as `kernels.linear_kernel` gives it;
    `activations`: as `kernels.linear` takes them, or bf16 for floats that are that."""

    name: str
    activations: str = "float"

    def __str__(self) -> str:
        return f"{self.name}+{self.activations}"

    @property
    def rows(self) -> int:
        """Of activations, that it was counted with, if it was."""
        return 16 if self.name.endswith("/amx") and not self.name.startswith(HALVES) else 1

    def counted(self, format: WeightFormat, density: float) -> Counted:
        weights, sparse, classes = str(format), density < 1, activation_classes(self.activations)
        for one in classes:
            for count in COUNTS:
                if (count.kernel, count.weights, count.sparse, count.activations) == (self.name, weights, sparse, one):
                    return count
        asked = _words(weights, sparse, classes[0])
        raise ValueError(
            f"{self.name} was not counted for {asked}; there are {self._listing()}. Count it as docs/kernels.md "
            "says, or ask for another decompressor: none (the least that any takes), libxsmm or deca"
        )

    def demands(self, format: WeightFormat, density: float) -> dict[str, float]:
        count = self.counted(format, density)
        asked = {MEMORY: tile_bytes(format, density), VECTOR: count.operations + count.per_density[0] * density}
        if count.instructions is not None:
            asked[FRONT_END] = count.instructions + count.per_density[1] * density
        return asked if count.matrix is None else {**asked, MATRIX: count.matrix}

    def rates(self, machine: Machine) -> dict[str, float]:
        rates = {MEMORY: machine.memory.bandwidth, VECTOR: machine.vector_rate}
        if machine.issue is not None:
            rates[FRONT_END] = machine.cycles_per_second * machine.issue
        return rates if machine.matrix is None else {**rates, MATRIX: machine.matrix_rate}

    def _listing(self) -> str:
        counted = dict.fromkeys(
            _words(one.weights, one.sparse, one.activations) for one in COUNTS if one.kernel == self.name
        )
        return ", ".join(counted) or "none of this kernel"


def kernel_on(isa: str, format: WeightFormat, density: float, activations: str, batch: int) -> Kernel:
    """The kernel that runs `batch` rows where `isa` is the best instruction set, of those that were counted with as
    many. Of several it is the one that asks least of the vector units, as dispatch has it."""
    matrix, classes = (str(format), density < 1), activation_classes(activations)
    here = [one for one in COUNTS if one.isa in isas_of(isa) and one.activations in classes]
    alike = [one for one in here if (one.weights, one.sparse) == matrix]
    fitting = [one for one in alike if one.rows == batch]
    if not fitting:
        rows = sorted({one.rows for one in alike})
        counted = f", only {' and '.join(map(str, rows))}" if rows else ""
        raise ValueError(f"nobody has counted {batch} rows of {_words(*matrix, classes[0])} on {isa}{counted}")
    return Kernel(min(fitting, key=lambda one: one.operations).kernel, activations)


def isa_of(machine: Machine) -> str:
    """The best instruction set of a machine that is described and not at hand, among those that were counted for."""
    if machine.vector is None:
        raise MachineError(f"{machine.name} has no vector units: add vector to its description")
    if machine.vector.bits == 512:
        return "amx" if machine.matrix is not None and machine.matrix.rows > 1 else "avx512_bf16"
    if machine.vector.bits == 128:
        return "neon_dotprod"
    bits = machine.vector.bits
    raise MachineError(f"none of our kernels was counted for vectors of {bits} bits, as {machine.name} has")


def is_counted_on(machine: Machine) -> bool:
    """Whether any of our kernels was counted for the machine's instruction set."""
    try:
        return any(one.isa in isas_of(isa_of(machine)) for one in COUNTS)
    except MachineError:
        return False


def isas_of(isa: str) -> tuple[str, ...]:
    """Instruction sets whose kernels run where `isa` is the best: few rows are not worth the matrix unit, and integers
    are all the same to AVX-512 with bf16 products and without."""
    below = ["amx", "avx512_bf16", "avx512_vbmi2"]
    return tuple(below[below.index(isa) :]) if isa in below else (isa,)


def floats_as(activations: str, dtype: torch.dtype) -> str:
    """Activations of that type by the name that `Kernel` knows them under."""
    return "bf16" if activations == "float" and dtype == torch.bfloat16 else activations


def activation_classes(activations: str) -> tuple[str, ...]:
    """What the counts tell apart: float, int8, bfp7 or bfp8; of bf16 its own, and where there are none those of
    floats."""
    if activations in ("float", "int8"):
        return (activations,)
    format = parse(activations)
    if str(format) == "bf16":
        return ("bf16", "float")
    if not isinstance(format, BFP):
        raise ValueError(f"activations are float, bf16, int8 or bfp:gN:mN, not {activations!r}")
    return ("bfp7" if format.mantissa <= 7 else "bfp8",)


def _words(weights: str, sparse: bool, activations: str) -> str:
    return f"{'sparse ' if sparse else ''}{weights}+{activations}"
