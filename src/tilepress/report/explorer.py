"""What the page's explorer computes from: machines, formats and counts, as roofsurface/ has them."""

from typing import Any

from ..formats import WeightFormat, parse_weight, weight_names
from ..hardware import Machine, machine_names, read_machine
from ..hardware.machine import TILE_WEIGHTS
from ..roofsurface.decompressors import LIBXSMM_COUNTS


def explorer_data() -> dict[str, Any]:
    """For roofsurface.js, which has the formulas."""
    return {
        "tileWeights": TILE_WEIGHTS,
        "libxsmm": {_kind(*key): count.operations for key, count in LIBXSMM_COUNTS.items()},
        "machines": {name: machine_data(read_machine(name)) for name in machine_names()},
        "formats": {name: format_data(parse_weight(name)) for name in weight_names()},
    }


def machine_data(machine: Machine) -> dict[str, Any]:
    return {
        "title": machine.title,
        "bandwidth": machine.memory.bandwidth,
        "cycles": machine.cycles_per_second,
        "vectorRate": machine.vector_rate if machine.vector else None,
        "matrixRate": machine.matrix_rate,
        "rows": machine.matrix.rows if machine.matrix else 1,
        "sources": machine.sources,
    }


def format_data(format: WeightFormat) -> dict[str, Any]:
    """`groupBits`: a weight's share of its group's scale and zero point."""
    return {"bits": format.element.bits, "groupBits": format.bits_per_weight() - format.element.bits}


def _kind(bits: int, sparse: bool) -> str:
    return f"{bits} sparse" if sparse else str(bits)
