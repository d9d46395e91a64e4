"""A mapped module as arrays: gates in an order in which each comes after what drives it, flip-flops and memories.

Nets are numbered; 0 and 1 are the constants. A gate's or flip-flop's state is a number: bit n is the value of its n-th
input, the clock left out, and for a flip-flop the highest bit is its own state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expressions import Bools, evaluate
from ..liberty import Cell, Library
from ..synthesis import MEMORY, NOT_CELLS

Ints = NDArray[np.int64]
Placed = tuple[Cell, Mapping[str, list[int]]]  # a cell, and the nets of its pins
MOST_INPUTS = 12


@dataclass(frozen=True, eq=False)
class Instances:
    """Gates or flip-flops: the cell of each, `inputs` [instances, most], nets, filled up with the constant 0, and
    `outputs` alike, filled up with a net that never toggles. `tables[table_at[n] + state]`: values of its outputs, the
    first the lowest bit, and, above all columns of `outputs`, what a flip-flop's state becomes."""

    cells: list[Cell]
    inputs: Ints
    outputs: Ints
    counts: Ints
    table_at: Ints
    tables: Ints


@dataclass(frozen=True, eq=False)
class ClockGates:
    """`inputs` [gates, most]: nets, any of which lets an edge pass, filled up with the constant 0. `of` [flip-flops]:
    the gate of each one's clock, -1 where none is."""

    cells: list[Cell]
    inputs: Ints
    of: Ints


@dataclass(frozen=True)
class Memory:
    """One of Yosys' memories; `reads` and `writes` are ports: nets of (address, data), (address, data, enables)."""

    name: str
    size: int
    width: int
    reads: list[tuple[list[int], list[int]]]
    writes: list[tuple[list[int], list[int], list[int]]]


@dataclass(frozen=True)
class Netlist:
    """`nets`: how many. `order`: gates by number, and read ports of memories, numbered on, each after its drivers."""

    nets: int
    inputs: Mapping[str, list[int]]
    outputs: Mapping[str, list[int]]
    gates: Instances
    flip_flops: Instances
    clock_gates: ClockGates
    memories: list[Memory]
    order: Ints
    library: Library


def netlist_of(module: Mapping[str, Any], library: Library) -> Netlist:
    """Of what `synthesis.mapped` gives. ValueError for cells that cannot be simulated."""
    ports = {name: (port["direction"], _nets(port["bits"])) for name, port in module["ports"].items()}
    cells = [(name, cell, _connections(cell)) for name, cell in module["cells"].items()]
    mapped = [(_known(library, cell["type"]), nets) for _, cell, nets in cells if cell["type"] not in NOT_CELLS]
    flip_flops = [(kind, nets) for kind, nets in mapped if kind.flip_flop]
    clock_gates = _clock_gates([(kind, nets) for kind, nets in mapped if kind.clock_gate], flip_flops)
    fresh = count(1 + max([1, *(net for _, _, nets in cells for some in nets.values() for net in some)]))
    still = next(fresh)
    gates = _instances([(kind, nets) for kind, nets in mapped if not kind.clock], fresh, still)
    memories = [_memory(name, cell["parameters"], nets) for name, cell, nets in cells if cell["type"] == MEMORY]
    reads = [read for memory in memories for read in memory.reads]
    return Netlist(
        inputs={name: nets for name, (direction, nets) in ports.items() if direction == "input"},
        outputs={name: nets for name, (direction, nets) in ports.items() if direction == "output"},
        gates=gates,
        flip_flops=_instances(flip_flops, fresh, still),
        clock_gates=clock_gates,
        memories=memories,
        order=_ordered([*zip(gates.inputs.tolist(), gates.outputs.tolist(), strict=True), *reads], still),
        nets=max(next(fresh), *(1 + net for _, nets in ports.values() for net in nets)),
        library=library,
    )


def _connections(cell: Mapping[str, Any]) -> dict[str, list[int]]:
    return {port: _nets(bits) for port, bits in cell["connections"].items()}


def _clock_gates(gates: Sequence[Placed], flip_flops: Sequence[Placed]) -> ClockGates:
    """ValueError unless all clocks are one, or gated once from it."""
    gated = {nets[kind.clock_gate.output][0]: place for place, (kind, nets) in enumerate(gates) if kind.clock_gate}
    clocks = [nets[kind.clock][0] for kind, nets in (*gates, *flip_flops) if kind.clock]
    if len(set(clocks) - gated.keys()) > 1 or not gated.keys().isdisjoint(clocks[: len(gates)]):
        raise ValueError("flip-flops have more than one clock, so they cannot be simulated")
    inputs = [[net for pin in kind.inputs for net in nets.get(pin.name, [0])] for kind, nets in gates]
    of = np.array([gated.get(net, -1) for net in clocks[len(gates) :]], np.int64)
    return ClockGates([kind for kind, _ in gates], filled(inputs, 0), of)


def _nets(bits: Iterable[int | str]) -> list[int]:
    """Yosys numbers nets from 2 on; x is 0."""
    return [bit if isinstance(bit, int) else int(bit == "1") for bit in bits]


def _known(library: Library, name: str) -> Cell:
    if name not in library.cells:
        raise ValueError(f"the library has no cell {name}, which the netlist has")
    return library.cells[name]


def _instances(cells: Sequence[Placed], fresh: Iterator[int], still: int) -> Instances:
    """Outputs that drive nothing have `fresh` nets."""
    kinds = {kind.name: kind for kind, _ in cells}
    columns = max((len(kind.outputs) for kind in kinds.values()), default=0)
    tables = [table_of(kind, columns) for kind in kinds.values()]
    starts = dict(zip(kinds, np.cumsum([0, *map(len, tables)]).tolist(), strict=False))
    inputs = [[net for pin in kind.inputs for net in nets.get(pin.name, [0])] for kind, nets in cells]
    outputs = [[(nets.get(pin.name) or [next(fresh)])[0] for pin in kind.outputs] for kind, nets in cells]
    return Instances(
        [kind for kind, _ in cells],
        filled(inputs, 0),
        filled(outputs, still),
        np.array([len(nets) for nets in inputs], np.int64),
        np.array([starts[kind.name] for kind, _ in cells], np.int64),
        np.concatenate([np.zeros(0, np.int64), *tables]),
    )


def filled(rows: Sequence[Sequence[int]], with_: int) -> Ints:
    filled = np.full((len(rows), max(map(len, rows), default=0)), with_, np.int64)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return filled


def table_of(cell: Cell, columns: int) -> Ints:
    """[states]: bits of its outputs, and bit `columns`: what a flip-flop's state becomes."""
    states = states_of(cell)
    bits = {place: states[pin.name] for place, pin in enumerate(cell.outputs)}
    if cell.flip_flop:
        bits[columns] = _evaluated(cell, cell.flip_flop.next_state, states)
    return np.array(sum(bit.astype(np.int64) << place for place, bit in bits.items()), np.int64)


def states_of(cell: Cell) -> dict[str, Bools]:
    """The value of each pin, and of a flip-flop's state, in each state; the clock is high."""
    names = [pin.name for pin in cell.inputs] + ([cell.flip_flop.state] if cell.flip_flop else [])
    if len(names) > MOST_INPUTS:
        raise ValueError(f"cell {cell.name} has {len(names)} inputs; those of at most {MOST_INPUTS} can be simulated")
    index = np.arange(1 << len(names))
    states = {name: (index >> place & 1).astype(bool) for place, name in enumerate(names)}
    if cell.flip_flop:
        states[cell.flip_flop.clock] = np.ones(len(index), bool)
        states[cell.flip_flop.inverse] = ~states[cell.flip_flop.state]
    return states | {pin.name: _evaluated(cell, pin.function, states) for pin in cell.outputs}


def _evaluated(cell: Cell, function: str | None, states: Mapping[str, Bools]) -> Bools:
    if not function:
        raise ValueError(f"cell {cell.name} has an output without a function, so it cannot be simulated")
    return evaluate(function, states or {"": np.zeros(1, bool)})


def _memory(name: str, parameters: Mapping[str, str], nets: Mapping[str, list[int]]) -> Memory:
    number = cache(lambda key: int(parameters[key].replace("x", "0"), 2))
    width, address_bits, size = number("WIDTH"), number("ABITS"), number("SIZE")
    if number("RD_CLK_ENABLE") or number("INIT") or number("OFFSET"):
        raise ValueError(f"memory {name} has a clocked read port or contents, which cannot be simulated")

    def ports(number_of: str, *fields: tuple[str, int]) -> list[Any]:
        cut = [[nets[key][n * bits :][:bits] for n in range(number(number_of))] for key, bits in fields]
        return list(zip(*cut, strict=True))

    reads = ports("RD_PORTS", ("RD_ADDR", address_bits), ("RD_DATA", width))
    writes = ports("WR_PORTS", ("WR_ADDR", address_bits), ("WR_DATA", width), ("WR_EN", width))
    return Memory(name, size, width, reads, writes)


def _ordered(nodes: Sequence[tuple[Sequence[int], Sequence[int]]], still: int) -> Ints:
    """(inputs, outputs) of nodes, so that each comes after those that drive it."""
    driver = {net: node for node, (_, outputs) in enumerate(nodes) for net in outputs if net != still}
    readers: list[list[int]] = [[] for _ in nodes]
    missing = np.zeros(len(nodes), np.int64)
    for node, (inputs, _) in enumerate(nodes):
        for net in inputs:
            if net in driver:
                readers[driver[net]].append(node)
                missing[node] += 1
    ready = [node for node in range(len(nodes)) if not missing[node]]
    for node in ready:  # grows
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    if len(ready) < len(nodes):
        raise ValueError("the netlist has a loop of gates, so it cannot be simulated")
    return np.array(ready, np.int64)
