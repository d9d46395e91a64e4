"""A netlist, cycle by cycle, without delays: what its outputs are, how often each net toggles, what inputs take that no
output follows.

In a cycle a net has one value, that before the clock's edge: glitches are not seen. Flip-flops begin at zero, whatever
that means for their outputs, memories hold zeros, and a cycle of reset comes first, in which memories do not write.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...simulate.deca.compiled import compiled
from ..liberty import Cell
from .netlist import ClockGates, Instances, Ints, Memory, Netlist, filled, states_of
from .trace import Bits, Trace

Floats = NDArray[np.float64]
CLOCK, RESET = "clk", "rst"


@dataclass(frozen=True, eq=False)
class Activity:
    """From cycle `begin` of a trace on. `toggles` [nets]. Joules of inputs that no output follows: of gates, of
    flip-flops, of flip-flops' clocks. `pulses` [clock gates]: clock edges that passed. `reads` and `writes`: words of
    each memory; `outputs`: bits of each port by cycle."""

    cycles: int
    toggles: Ints
    gates: float
    flip_flops: float
    clock: float
    pulses: Ints
    reads: Ints
    writes: Floats
    outputs: dict[str, Bits]


def simulate(netlist: Netlist, trace: Trace, slew: float, begin: int = 0) -> Activity:
    """`slew`: seconds of every input's edge."""
    inputs = {name: nets for name, nets in netlist.inputs.items() if name not in (CLOCK, RESET)}
    resets = netlist.inputs.get(RESET, [])
    words = [np.concatenate([trace.inputs[name][:1], trace.inputs[name]]) for name in inputs]
    constants = np.zeros((1 + trace.cycles, 2 + len(resets)), np.uint8)
    constants[:, 1] = constants[0, 2:] = 1
    stimulus = np.concatenate([constants, *words], axis=1)
    driven = np.array([0, 1, *resets, *(net for nets in inputs.values() for net in nets)], np.int64)
    observed = np.array([net for nets in netlist.outputs.values() for net in nets], np.int64)
    seen, toggles, hidden, pulses, reads, writes = _run(
        netlist.nets, stimulus, driven, observed, begin + 1, netlist.order,
        *_arrays(netlist.gates, slew), *_arrays(netlist.flip_flops, slew),
        *_clock_arrays(netlist.clock_gates), *_memory_arrays(netlist.memories),
    )  # fmt: skip
    ends = np.cumsum([len(nets) for nets in netlist.outputs.values()])[:-1]
    outputs = dict(zip(netlist.outputs, np.split(seen[1:], ends, axis=1), strict=True))
    in_gates, in_flip_flops, in_clocks = hidden.tolist()
    return Activity(trace.cycles - begin, toggles, in_gates, in_flip_flops, in_clocks, pulses, reads, writes, outputs)


def _arrays(instances: Instances, slew: float) -> tuple[Any, ...]:
    """What compiled code takes; `hidden[hidden_at + pin * states + state]` are joules."""
    kinds = {cell.name: cell for cell in instances.cells}
    energies = [hidden_of(cell, slew).ravel() for cell in kinds.values()]
    starts = dict(zip(kinds, np.cumsum([0, *map(len, energies)]).tolist(), strict=False))
    hidden_at = np.array([starts[cell.name] for cell in instances.cells], np.int64)
    hidden = np.concatenate([np.zeros(0), *energies])
    one = instances
    return one.inputs, one.outputs, one.counts, one.table_at, one.tables, hidden_at, hidden


def hidden_of(cell: Cell, slew: float) -> Floats:
    """Joules [inputs, states] of an input that came to its value in this state, and of a flip-flop's clock: a row of
    its rising edge, and one of its falling."""
    states = states_of(cell)
    rows = []
    for pin in cell.inputs:
        rise, fall = pin.hidden(slew, states)
        rows.append(np.where(states[pin.name], rise, fall))
    if cell.flip_flop:
        rows += cell.pin(cell.flip_flop.clock).hidden(slew, states)
    return np.array(rows).reshape(len(rows), -1)


def _clock_arrays(gates: ClockGates) -> list[Ints]:
    return [gates.inputs, gates.of]


def _memory_arrays(memories: list[Memory]) -> list[Ints]:
    """First bit, words and width of each memory; read ports: memory, address, data; write ports: those and enables."""
    ends = np.cumsum([memory.size * memory.width for memory in memories], dtype=np.int64)
    places = [(end - m.size * m.width, m.size, m.width) for m, end in zip(memories, ends.tolist(), strict=True)]
    reads = [(index, *port) for index, memory in enumerate(memories) for port in memory.reads]
    writes = [(index, *port) for index, memory in enumerate(memories) for port in memory.writes]
    return [np.array(places, np.int64).reshape(-1, 3), *_port_arrays(reads, 2), *_port_arrays(writes, 3)]


def _port_arrays(ports: list[Any], fields: int) -> list[Ints]:
    """Lists of nets [ports, most]; addresses are filled up with the constant 0."""
    columns = [[port[place] for port in ports] for place in range(1, 1 + fields)]
    return [np.array([port[0] for port in ports], np.int64), *(filled(nets, 0) for nets in columns)]


@compiled
def _number(values: Bits, nets: Ints, row: int) -> int:
    """The word on a row of nets, the lowest bit first."""
    word = 0
    for place in range(nets.shape[1]):
        word |= int(values[nets[row, place]]) << place
    return word


@compiled
def _put(values: Bits, nets: Ints, row: int, word: int) -> None:
    for place in range(nets.shape[1]):
        values[nets[row, place]] = word >> place & 1


@compiled
def _differs(values: Bits, before: Bits, nets: Ints, row: int) -> bool:
    for place in range(nets.shape[1]):  # noqa: SIM110 - numba compiles no generators
        if values[nets[row, place]] != before[nets[row, place]]:
            return True
    return False


@compiled
def _hidden(values: Bits, before: Bits, nets: Ints, row: int, energies: Floats, at: int, states: int) -> float:
    """Joules of the inputs that toggled; those of the first input stand at `at`."""
    energy = 0.0
    for pin in range(nets.shape[1]):
        if values[nets[row, pin]] != before[nets[row, pin]]:
            energy += energies[at + pin * states]
    return energy


@compiled
def _read(values: Bits, cells: Bits, place: Ints, address: Ints, data: Ints, port: int) -> None:
    """What a memory shows; beyond its last word, zeros."""
    first, words, width = place
    word = _number(values, address, port)
    for bit in range(width):
        values[data[port, bit]] = cells[first + word * width + bit] if word < words else 0


@compiled
def _write(values: Bits, cells: Bits, place: Ints, address: Ints, data: Ints, enables: Ints, port: int) -> float:
    """The part of a word that is written."""
    first, words, width = place
    word, written = _number(values, address, port), 0
    for bit in range(width):
        if word < words and values[enables[port, bit]]:
            cells[first + word * width + bit] = values[data[port, bit]]
            written += 1
    return float(written / width)


@compiled
def _run(
    nets: int, stimulus: Bits, driven: Ints, observed: Ints, begin: int, order: Ints,
    g_inputs: Ints, g_outputs: Ints, g_counts: Ints, g_table: Ints, g_tables: Ints, g_hidden: Ints, g_energy: Floats,
    f_inputs: Ints, f_outputs: Ints, f_counts: Ints, f_table: Ints, f_tables: Ints, f_hidden: Ints, f_energy: Floats,
    c_inputs: Ints, f_gate: Ints, places: Ints, r_memory: Ints, r_address: Ints, r_data: Ints,
    w_memory: Ints, w_address: Ints, w_data: Ints, w_enables: Ints,
) -> tuple[Bits, Ints, Floats, Ints, Ints, Floats]:  # fmt: skip
    """`g_`: of gates, `f_`: of flip-flops, `c_`: of clock gates, `r_` and `w_`: of ports of memories."""
    gates, flops = len(g_table), len(f_table)
    values, before, states = np.zeros(nets, np.uint8), np.zeros(nets, np.uint8), np.zeros(flops, np.int64)
    cells = np.zeros((places[:, 1] * places[:, 2]).sum(), np.uint8)
    seen, toggles, hidden = np.zeros((len(stimulus), len(observed)), np.uint8), np.zeros(nets, np.int64), np.zeros(3)
    reads, writes = np.zeros(len(places), np.int64), np.zeros(len(places))
    passes, pulses = np.ones(len(c_inputs), np.bool_), np.zeros(len(c_inputs), np.int64)
    for cycle in range(len(stimulus)):
        for place in range(len(driven)):
            values[driven[place]] = stimulus[cycle, place]
        for f in range(flops):
            _put(values, f_outputs, f, f_tables[f_table[f] + (states[f] << f_counts[f])])
        for node in order:
            if node < gates:
                _put(values, g_outputs, node, g_tables[g_table[node] + _number(values, g_inputs, node)])
            else:
                port = node - gates
                _read(values, cells, places[r_memory[port]], r_address, r_data, port)
        for place in range(len(observed)):
            seen[cycle, place] = values[observed[place]]
        counts = cycle >= begin
        if counts:
            for net in range(nets):
                toggles[net] += values[net] != before[net]
            for g in range(gates):
                if not _differs(values, before, g_outputs, g):
                    at = g_hidden[g] + _number(values, g_inputs, g)
                    hidden[0] += _hidden(values, before, g_inputs, g, g_energy, at, 1 << g_counts[g])
            for port in range(len(r_memory)):
                other = _differs(values, before, r_address, port) or _differs(values, before, r_data, port)
                reads[r_memory[port]] += other
            pulses += passes  # the edge that this cycle began with
        for f in range(flops):
            state, all_states = _number(values, f_inputs, f) | states[f] << f_counts[f], 2 << f_counts[f]
            if counts:
                at, clock = f_hidden[f] + state, f_hidden[f] + state + f_counts[f] * all_states
                hidden[1] += _hidden(values, before, f_inputs, f, f_energy, at, all_states)
                if f_gate[f] < 0 or passes[f_gate[f]]:
                    rises = not _differs(values, before, f_outputs, f)
                    hidden[2] += rises * f_energy[clock] + f_energy[clock + all_states]
            if f_gate[f] < 0 or _number(values, c_inputs, f_gate[f]):
                states[f] = f_tables[f_table[f] + state] >> f_outputs.shape[1]
        for gate in range(len(c_inputs)):
            passes[gate] = _number(values, c_inputs, gate) > 0
        for port in range(len(w_memory) if cycle else 0):
            memory = w_memory[port]
            writes[memory] += counts * _write(values, cells, places[memory], w_address, w_data, w_enables, port)
        before[:] = values
    return seen, toggles, hidden, pulses, reads, writes
