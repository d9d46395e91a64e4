"""What an operation of a unit takes in the cells of a library, by the toggles of what it is given.

In: for every toggle of a cell's output, the cell's internal energy at its load and half of C · V² of the pins that it
drives; what inputs take that no output follows; clock pins of flip-flops in every cycle; pins at ports; leakage.
Out: wires, the clock's tree, glitches, what ports drive outside.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...hardware.technology import Memory, cacti
from ..liberty import read_library
from ..synthesis import USUAL, Options, Synthesis, liberty_text, mapped
from ..units import Unit
from .case import Case
from .clocks import clock_energy
from .netlist import Instances, Netlist, netlist_of
from .operands import RANDOM, Operands
from .simulation import Activity, simulate
from .stimuli import cases

Floats = NDArray[np.float64]
PICO = 1e12
# What CACTI was run for: a unit's memories by the last part of their names. The queue is also the output register.
CACTI = {"deca-pe": {"table": "table", "bank": "queue"}}


@dataclass(frozen=True)
class Conditions:
    """`slew` of all inputs and the clock's period in ps; `node` of the library in nm, to which memories are scaled;
    `data`: where operands come from."""

    slew: float = 20.0
    clock: float = 1000.0
    node: float | None = None
    data: str = RANDOM

    def __post_init__(self) -> None:
        for name in ("slew", "clock"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a time of more than 0 ps, not {getattr(self, name)}")


@dataclass(frozen=True)
class Energy:
    """pJ of one operation. `memories` is None where there are none, or where nobody knows what theirs is."""

    combinational: float
    registers: float
    clock: float
    ports: float
    leakage: float
    memories: float | None = None

    @property
    def parts(self) -> dict[str, float]:
        return {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Measured:
    """`cycles`, `reads` and `writes` (words of memories) of one operation."""

    case: Case
    energy: Energy
    conditions: Conditions
    cycles: float
    reads: float
    writes: float

    def figures(self) -> Iterator[tuple[str, dict[str, str | float], float, str]]:
        """(metric, labels, value, unit) of records."""
        given = {name: value for name, value in vars(self.conditions).items() if value is not None}
        labels: dict[str, str | float] = {"case": self.case.name, "operation": self.case.operation, **given}
        yield "energy", labels, self.energy.total, "pJ"
        yield "energy_per_item", labels | {"item": self.case.item}, self.energy.total / self.case.items, "pJ"
        for part, energy in self.energy.parts.items():
            yield f"energy_{part}", labels, energy, "pJ"
        yield "cycles", labels, self.cycles, ""
        if self.reads or self.writes:
            yield "memory_reads", labels, self.reads, "word"
            yield "memory_writes", labels, self.writes, "word"


def measure(
    unit: Unit,
    liberty: Sequence[Path],
    operands: Operands,
    conditions: Conditions,
    only: Sequence[str] = (),
    options: Options = USUAL,
) -> tuple[Synthesis, Iterator[Measured]]:
    """Its costs in cells, and the energy of its cases one after another, or of those called `only`."""
    if not liberty:
        raise ValueError("energy needs a library of cells: give its files with --liberty")
    chosen = _chosen(cases(unit, operands), only)
    costs, module = mapped(unit, liberty, options)
    used = {cell["type"] for cell in module["cells"].values()}
    library = read_library(map(liberty_text, liberty), used.__contains__)
    netlist = netlist_of(module, library)
    return costs, (_measured(unit, netlist, case, conditions) for case in chosen)


def _chosen(every: Sequence[Case], only: Sequence[str]) -> list[Case]:
    unknown = [name for name in only if name not in {case.name for case in every}]
    if unknown:
        raise ValueError(f"there is no case {unknown[0]!r}; there are {', '.join(case.name for case in every)}")
    return [case for case in every if not only or case.name in only]


def _measured(unit: Unit, netlist: Netlist, case: Case, conditions: Conditions) -> Measured:
    trace, operations, begin = case.trace()
    activity = simulate(netlist, trace, conditions.slew / PICO, begin)
    for name, bits in activity.outputs.items():
        if not np.array_equal(bits, trace.outputs[name]):
            cycle = int((bits != trace.outputs[name]).any(axis=1).argmax())
            raise RuntimeError(f"{unit.name}: the netlist's {name} is not the RTL's in cycle {cycle} of {case.name}")
    energy = energy_of(netlist, activity, conditions, operations, _known_memories(unit, netlist, conditions))
    words = (counts.sum() / operations for counts in (activity.reads, activity.writes))
    return Measured(case, energy, conditions, activity.cycles / operations, *words)


def energy_of(
    netlist: Netlist,
    activity: Activity,
    conditions: Conditions,
    operations: int,
    memories: Sequence[tuple[float, float]] | None = None,
) -> Energy:
    """`memories`: pJ of reading and of writing a word of each."""
    slew, library = conditions.slew / PICO, netlist.library
    loads = loads_of(netlist)
    half = library.voltage**2 / 2
    clock = activity.clock + clock_energy(netlist, activity, slew, half)
    undriven = {net for name, nets in netlist.inputs.items() if name != "clk" for net in nets}
    undriven |= {net for memory in netlist.memories for _, data in memory.reads for net in data}
    ports = half * sum(float(activity.toggles[net] * loads[net]) for net in undriven)
    cells = netlist.gates.cells + netlist.flip_flops.cells + netlist.clock_gates.cells
    leaking = sum(cell.leakage for cell in cells)
    scale = PICO / operations
    return Energy(
        combinational=scale * (_switched(netlist.gates, activity, loads, slew, half) + activity.gates),
        registers=scale * (_switched(netlist.flip_flops, activity, loads, slew, half) + activity.flip_flops),
        clock=scale * clock,
        ports=scale * ports,
        leakage=scale * leaking * activity.cycles * conditions.clock / PICO,
        memories=None if memories is None else _accessed(activity, memories) / operations,
    )


def loads_of(netlist: Netlist) -> Floats:
    """Farads of the pins on each net, clocks left out."""
    loads = np.zeros(netlist.nets)
    for instances in (netlist.gates, netlist.flip_flops, netlist.clock_gates):
        for cell, nets in zip(instances.cells, instances.inputs, strict=True):
            for pin, net in zip(cell.inputs, nets, strict=False):
                loads[net] += pin.capacitance
    return loads


def _switched(instances: Instances, activity: Activity, loads: Floats, slew: float, half: float) -> float:
    """Joules of all toggles of outputs: the cells' own and those of what they drive."""
    energy = 0.0
    by_kind: dict[str, list[int]] = {}
    for index, cell in enumerate(instances.cells):
        by_kind.setdefault(cell.name, []).append(index)
    for indices in by_kind.values():
        for place, pin in enumerate(instances.cells[indices[0]].outputs):
            nets = instances.outputs[indices, place]
            energy += float(activity.toggles[nets] @ (pin.switching(slew, loads[nets]) + half * loads[nets]))
    return energy


def _known_memories(unit: Unit, netlist: Netlist, conditions: Conditions) -> list[tuple[float, float]] | None:
    """pJ of a word of each memory; None unless all are known."""
    if conditions.node is None or not netlist.memories or unit.name not in CACTI:
        return None
    voltage = netlist.library.voltage
    return [_word(_cacti(unit, memory.name), conditions.node, voltage) for memory in netlist.memories]


def _cacti(unit: Unit, name: str) -> Memory:
    return next(cacti(kept) for part, kept in CACTI[unit.name].items() if part in name.rpartition(".")[2])


def _word(memory: Memory, node: float, voltage: float) -> tuple[float, float]:
    read, write = (memory.energy_at(one, node, voltage) for one in (memory.read_energy, memory.write_energy))
    return read, write


def _accessed(activity: Activity, memories: Iterable[tuple[float, float]]) -> float:
    pairs = zip(memories, activity.reads.tolist(), activity.writes.tolist(), strict=True)
    return float(sum(read * reads + write * writes for (read, write), reads, writes in pairs))
