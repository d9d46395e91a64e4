"""What clocks take: pins of flip-flops and of clock gates, and what clock gates pass on. No tree is between them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..liberty import Cell
from .netlist import Netlist
from .simulation import Activity


def clock_energy(netlist: Netlist, activity: Activity, slew: float, half: float) -> float:
    """Joules, beside what simulation counts of flip-flops' clock pins. `half` of the square of the voltage."""
    edges = 2 * half * sum(_charges(netlist, activity))
    gates = zip(netlist.clock_gates.cells, _gated_loads(netlist), activity.pulses.tolist(), strict=True)
    inside = sum(_inside(cell, slew, load, pulses, activity.cycles) for cell, load, pulses in gates)
    return edges + inside + _enables(netlist, activity, slew)


def _charges(netlist: Netlist, activity: Activity) -> Iterator[float]:
    """Farads of each clock pin, times the cycles in which it has edges."""
    for cell, gate in zip(netlist.flip_flops.cells, netlist.clock_gates.of.tolist(), strict=True):
        yield _clock_pin(cell) * (activity.cycles if gate < 0 else activity.pulses[gate])
    for cell in netlist.clock_gates.cells:
        yield _clock_pin(cell) * activity.cycles


def _clock_pin(cell: Cell) -> float:
    """Farads."""
    return cell.pin(cell.clock).capacitance if cell.clock else 0.0


def _gated_loads(netlist: Netlist) -> NDArray[np.float64]:
    """Farads that each clock gate drives."""
    loads = np.zeros(len(netlist.clock_gates.cells))
    for cell, gate in zip(netlist.flip_flops.cells, netlist.clock_gates.of.tolist(), strict=True):
        if gate >= 0:
            loads[gate] += _clock_pin(cell)
    return loads


def _inside(cell: Cell, slew: float, load: float, pulses: int, cycles: int) -> float:
    """Joules of a clock gate itself: edges that it passes, and edges that it stops, with all enables low."""
    if cell.clock_gate is None:
        return 0.0
    state = {pin.name: np.zeros(1, np.bool_) for pin in cell.pins}
    passed = 2 * cell.pin(cell.clock_gate.output).switching(slew, np.array([load]))[0]
    rise, fall = cell.pin(cell.clock_gate.clock).hidden(slew, state)
    return float(pulses * passed + (cycles - pulses) * (rise[0] + fall[0]))


def _enables(netlist: Netlist, activity: Activity, slew: float) -> float:
    """Joules of the toggles of clock gates' enables, while the clock is low."""
    energy = 0.0
    for cell, nets in zip(netlist.clock_gates.cells, netlist.clock_gates.inputs, strict=True):
        state = {pin.name: np.zeros(1, np.bool_) for pin in cell.pins}
        for pin, net in zip(cell.inputs, nets, strict=False):
            rise, fall = pin.hidden(slew, state)
            energy += float(activity.toggles[net] * (rise[0] + fall[0]) / 2)
    return energy
