"""What the page's explorer computes from: machines, formats and counts, as roofsurface/ has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..formats import Integer, WeightFormat, parse_weight, weight_names
from ..hardware import Machine, machine_names, read_machine
from ..hardware.here import known_core
from ..hardware.machine import TILE_WEIGHTS
from ..records import Record
from ..roofsurface.decompressors import LIBXSMM_BITS, LIBXSMM_COUNTS
from ..roofsurface.kernels import COUNTS, Counted, activation_classes, is_counted_on, isa_of, isas_of
from .blocks import number
from .catalogue import MACHINES
from .families import read

ACTIVATIONS = ("float", "bf16", "int8", "bfp:g32:m7", "bfp:g32:m8")  # a name for each kind that was counted
COUNTED = {one.isa for one in COUNTS}
MEASURED = {"cpu_cores", "cpu_frequency", "vector_rate", "matrix_rate", "matrix_rows"}  # and the read bandwidth


def explorer_data(records: Sequence[Record] = ()) -> dict[str, Any]:
    """For roofsurface.js, which has the formulas. Machines are those of the package, and those that were measured."""
    known = {name: machine_data(read_machine(name)) for name in machine_names()}
    return {
        "tileWeights": TILE_WEIGHTS,
        "libxsmm": {_kind(*key): count.value for key, count in LIBXSMM_COUNTS.items()},
        "kernels": [kernel_data(one) for one in COUNTS],
        "activations": {one: activation_classes(one) for one in ACTIVATIONS},
        "machines": {**measured_machines(records), **known},
        "formats": {name: format_data(parse_weight(name)) for name in weight_names()},
    }


def kernel_data(count: Counted) -> dict[str, Any]:
    """`perDensity`: what is added to operations and instructions times the density."""
    return {
        "name": count.kernel,
        "isa": count.isa,
        "rows": count.rows,
        "weights": count.weights,
        "sparse": count.sparse,
        "activations": count.activations,
        "operations": count.operations,
        "instructions": count.instructions,
        "matrix": count.matrix,
        "perDensity": count.per_density,
    }


def machine_data(machine: Machine) -> dict[str, Any]:
    """`isas`: kernels of ours that were counted and run there; `frontEnd`: instructions a second, where known;
    `units` and `matrixCycles`: of a core, where its rates follow from them."""
    return {
        "title": machine.title,
        "argument": machine.name,
        "bandwidth": machine.memory.bandwidth,
        "cycles": machine.cycles_per_second,
        "vectorRate": machine.vector_rate if machine.vector else None,
        "matrixRate": machine.matrix_rate,
        "rows": machine.matrix.rows if machine.matrix else 1,
        "frontEnd": machine.cycles_per_second * machine.issue if machine.issue else None,
        "cores": machine.cores,
        "frequency": machine.frequency,
        "units": machine.vector.units if machine.vector else None,
        "matrixCycles": machine.matrix.cycles if machine.matrix else None,
        "isas": [one for one in isas_of(isa_of(machine)) if one in COUNTED] if is_counted_on(machine) else [],
        "libxsmm": machine.vector is not None and machine.vector.bits == LIBXSMM_BITS,
        "sources": machine.sources,
    }


def measured_machines(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Machines that `tilepress doctor` said enough of, by what they call themselves."""
    machines: dict[str, list[Record]] = {}
    for one in read(MACHINES, records):
        machines.setdefault(one.record.machine, []).append(one.record)
    features = {one.machine: str(one.value).split() for one in records if one.metric == "cpu_features"}
    measured = {}
    for name, figures in machines.items():
        reads = [one for one in figures if one.metric == "read_bandwidth" and number(one.value)]
        if reads and {one.metric for one in figures if number(one.value)} >= MEASURED:
            core = known_core(features.get(name, ())) or {}
            fastest = max(reads, key=lambda one: one.labels["threads"])
            measured[name] = _measured(name, {one.metric: one for one in figures}, fastest, core)
    return measured


def _measured(name: str, figures: Mapping[str, Record], reads: Record, core: Mapping[str, Any]) -> dict[str, Any]:
    """`reads`: the bandwidth that all threads have."""
    rates = {metric: number(record.value) or 0.0 for metric, record in figures.items()}
    isa = str(figures["active_isa"].value) if "active_isa" in figures else ""
    cycles = 1e9 * rates["cpu_cores"] * rates["cpu_frequency"]
    return {
        "title": f"{name}, measured",
        "argument": "here",
        "bandwidth": 1e9 * (number(reads.value) or 0.0),
        "cycles": cycles,
        "vectorRate": 1e9 * rates["vector_rate"],
        "matrixRate": 1e9 * rates["matrix_rate"],
        "rows": int(rates["matrix_rows"]),
        "frontEnd": cycles * core["issue"] if core else None,
        "cores": rates["cpu_cores"],
        "frequency": 1e9 * rates["cpu_frequency"],
        "units": 1e9 * rates["vector_rate"] / cycles,
        "matrixCycles": cycles / (1e9 * rates["matrix_rate"]),
        "isas": [one for one in isas_of(isa) if one in COUNTED] if core else [],
        "libxsmm": "avx512_vbmi2" in isas_of(isa),
        "sources": {metric.replace("_", " "): _source(figures[metric]) for metric in sorted(MEASURED)}
        | {"memory": f"measured with {reads.labels['threads']} threads: {reads.command}"}
        | ({"front end": f"{core['issue']} instructions a cycle: {core['source']}"} if core else {}),
    }


def _source(record: Record) -> str:
    return f"{record.origin}: {record.command}"


def format_data(format: WeightFormat) -> dict[str, Any]:
    """`groupBits`: a weight's share of its group's scale and zero point; `integer`: whether integers fit it best."""
    return {
        "name": str(format),
        "bits": format.element.bits,
        "groupBits": format.bits_per_weight() - format.element.bits,
        "integer": isinstance(format.element, Integer),
    }


def _kind(bits: int, sparse: bool) -> str:
    return f"{bits} sparse" if sparse else str(bits)
