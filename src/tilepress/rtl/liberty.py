"""Cells of a Liberty file: what they compute, the capacitances of their pins, and what they take to switch and leak.

Everything is in SI units: farads, joules, watts. Tables are read at one slew of inputs and at the load that a cell's
output has; between their points they are interpolated, beyond them their edges hold.

Charge that a cell takes from its supply is charge that it gives to ground, so libraries that list internal power for
both (`related_pg_pin`) list it twice: only what belongs to no ground pin counts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .expressions import Bools, evaluate

Floats = NDArray[np.float64]

_CELL = re.compile(r'^\s*cell\s*\(\s*"?([^\s")]+)"?\s*\)\s*\{', re.M)
_STATEMENT = re.compile(
    r'(?P<close>\})|(?P<name>\w+)\s*(?:\((?P<arguments>[^)]*)\)\s*(?P<open>\{)?|:\s*(?P<value>"[^"]*"|[^;}\n]*))'
)
_PREFIX = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15, "a": 1e-18}
_UNIT = re.compile(r"\s*([\d.]+)\s*([munpfa]?)(?:[fF]|[sS]|[wW]|[vV])\s*")
_SLEW, _LOAD = "input_transition_time", "total_output_net_capacitance"
_AXES = {"1": _SLEW, "2": _LOAD}  # of tables whose template says nothing


@dataclass
class Group:
    """`kind (arguments) { attributes and groups }`."""

    kind: str
    arguments: str
    attributes: dict[str, str] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    def all(self, kind: str) -> Iterator["Group"]:
        return (group for group in self.groups if group.kind == kind)

    def number(self, name: str, default: float = 0.0) -> float:
        text = self.attributes.get(name)
        try:
            return default if text is None else float(text)
        except ValueError:
            raise ValueError(f"{name} of {self.kind} ({self.arguments}) is no number: {text!r}") from None


@dataclass(frozen=True)
class Table:
    """Joules [slews, loads] of one edge."""

    slews: Floats
    loads: Floats
    energy: Floats

    def at(self, slew: float, loads: Floats) -> Floats:
        rows = np.stack([np.interp(loads, self.loads, row) for row in self.energy])
        return np.array([np.interp(slew, self.slews, column) for column in rows.T])


@dataclass(frozen=True)
class Power:
    """An `internal_power` group: energies of a rising and of a falling edge, each None if it is not listed."""

    when: str | None
    rise: Table | None
    fall: Table | None


@dataclass(frozen=True)
class Pin:
    """`function`: of an output."""

    name: str
    is_output: bool
    capacitance: float
    function: str | None
    powers: tuple[Power, ...]

    def switching(self, slew: float, loads: Floats) -> Floats:
        """Joules of a toggle of an output at each of `loads`: the mean of its tables, and of rising and falling."""
        edges = [[table.at(slew, loads) for table in tables if table] for tables in self._edges()]
        means = [np.mean(edge, axis=0) if edge else np.zeros_like(loads) for edge in edges]
        return np.asarray((means[0] + means[1]) / 2, np.float64)

    def _edges(self) -> tuple[list[Table | None], list[Table | None]]:
        return [power.rise for power in self.powers], [power.fall for power in self.powers]

    def hidden(self, slew: float, values: Mapping[str, Bools]) -> tuple[Floats, Floats]:
        """Joules of a rising and of a falling edge of an input that no output follows, in each state of the cell."""
        size = len(next(iter(values.values())))
        sums, counts = np.zeros((2, size)), np.zeros((2, size))
        for power in self.powers:
            holds = np.ones(size, bool) if power.when is None else evaluate(power.when, values)
            for edge, table in enumerate((power.rise, power.fall)):
                if table is not None:
                    sums[edge] += holds * table.at(slew, np.zeros(1))[0]
                    counts[edge] += holds
        rise, fall = sums / np.maximum(counts, 1)
        return rise, fall


@dataclass(frozen=True)
class FlipFlop:
    """Names of the state and of its inverse, "" if it has none; what the state becomes at the clock's edge."""

    state: str
    inverse: str
    next_state: str
    clock: str


@dataclass(frozen=True)
class ClockGate:
    """Pins of a cell whose `output` passes the edges of `clock` before which `enable` or `test` was high."""

    clock: str
    output: str
    enable: str
    test: str | None


@dataclass(frozen=True)
class Cell:
    name: str
    pins: tuple[Pin, ...]
    flip_flop: FlipFlop | None
    leakage: float
    clock_gate: ClockGate | None = None

    @property
    def clock(self) -> str | None:
        clocked = self.flip_flop or self.clock_gate
        return clocked.clock if clocked else None

    @property
    def inputs(self) -> list[Pin]:
        """Without the clock."""
        return [pin for pin in self.pins if not pin.is_output and pin.name != self.clock]

    @property
    def outputs(self) -> list[Pin]:
        return [pin for pin in self.pins if pin.is_output]

    def pin(self, name: str) -> Pin:
        return next(pin for pin in self.pins if pin.name == name)


@dataclass(frozen=True)
class Library:
    """`voltage` in volts."""

    voltage: float
    cells: Mapping[str, Cell]


def read_library(texts: Iterable[str], wanted: Callable[[str], bool] = lambda name: True) -> Library:
    """The `wanted` cells of the files of one library."""
    cells: dict[str, Cell] = {}
    voltages = set()
    for text in texts:
        header, of_cells = cut(text)
        reader = _Reader(parse(header))
        voltages.add(reader.voltage)
        cells |= {name: reader.cell(parse(of_cell)) for name, of_cell in of_cells.items() if wanted(name)}
    if len(voltages) != 1 or 0.0 in voltages:
        raise ValueError("a library's files must all say the same nom_voltage, not " + _listed(voltages))
    if not any(pin.powers for cell in cells.values() for pin in cell.pins):
        raise ValueError("the library has no tables of internal power, so energy cannot be said: choose another")
    return Library(voltages.pop(), cells)


def cut(text: str) -> tuple[str, dict[str, str]]:
    """What comes before the cells of a file, and the text of each cell, without comments."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("\\\n", " ")
    starts = [*_CELL.finditer(text)]
    bounds = [*(match.start() for match in starts), len(text)]
    cells = {match[1]: text[start:end] for match, (start, end) in zip(starts, pairwise(bounds), strict=True)}
    return text[: bounds[0]], cells


def _listed(voltages: Iterable[float]) -> str:
    return ", ".join(f"{voltage:g} V" if voltage else "none" for voltage in sorted(voltages)) or "none"


def parse(text: str) -> Group:
    """The first group of a text, whether it is closed or not."""
    top = Group("", "")
    open_groups = [top]
    for match in _STATEMENT.finditer(text):
        if match["close"]:
            open_groups.pop()
            if len(open_groups) <= 1:
                break
        elif match["open"]:
            group = Group(match["name"], match["arguments"].strip().strip('"'))
            open_groups[-1].groups.append(group)
            open_groups.append(group)
        else:
            value = match["value"] if match["value"] is not None else match["arguments"]
            open_groups[-1].attributes[match["name"]] = value.strip().strip('"').strip()
    if not top.groups:
        raise ValueError("a Liberty file begins with library (NAME) {")
    return top.groups[0]


class _Reader:
    """Cells by the units and templates of a file."""

    def __init__(self, library: Group) -> None:
        self._templates = {group.arguments: group for group in library.all("power_lut_template")}
        volt, self._leakage = (_unit(library, name) for name in ("voltage_unit", "leakage_power_unit"))
        self._time = _unit(library, "time_unit")
        size, _, prefix = library.attributes.get("capacitive_load_unit", "1,pf").partition(",")
        self._farad = _scaled(f"{size.strip()}{prefix.strip()}")
        self._joule = self._farad * volt**2
        self.voltage = library.number("nom_voltage") * volt
        self._default_capacitance = library.number("default_input_pin_cap")

    def cell(self, group: Group) -> Cell:
        grounds = {pin.arguments for pin in group.all("pg_pin") if "ground" in pin.attributes.get("pg_type", "")}
        outside = (pin for pin in group.all("pin") if pin.attributes.get("direction") != "internal")
        pins = tuple(self._pin(pin, grounds) for pin in outside)
        clock_gate = clock_gate_of(group)
        flip_flop = None if clock_gate else _flip_flop(group)
        return Cell(group.arguments, pins, flip_flop, self._leaks(group, grounds), clock_gate)

    def _pin(self, group: Group, grounds: set[str]) -> Pin:
        powers = [self._power(one) for one in group.all("internal_power") if _counts(one, grounds)]
        return Pin(
            group.arguments,
            group.attributes.get("direction") == "output",
            group.number("capacitance", self._default_capacitance) * self._farad,
            group.attributes.get("function"),
            tuple(powers),
        )

    def _power(self, group: Group) -> Power:
        tables = {table.kind: self._table(table) for table in group.groups}
        both = tables.get("power")
        return Power(group.attributes.get("when"), tables.get("rise_power", both), tables.get("fall_power", both))

    def _table(self, group: Group) -> Table:
        template = self._templates.get(group.arguments, Group("", ""))
        axes = {}
        for index in _AXES:
            points = _numbers(
                group, group.attributes.get(f"index_{index}", template.attributes.get(f"index_{index}", ""))
            )
            if len(points):
                axes[template.attributes.get(f"variable_{index}", _AXES[index])] = points
        values, sizes = _numbers(group, group.attributes.get("values", "")), [len(points) for points in axes.values()]
        if len(values) != np.prod(sizes):
            raise ValueError(
                f"a table of {group.kind} has {len(values)} values, not {' · '.join(map(str, sizes)) or 1}"
            )
        energy = values.reshape(sizes).T if list(axes)[:1] == [_LOAD] else values.reshape(sizes)
        slews, loads = axes.get(_SLEW, np.zeros(1)), axes.get(_LOAD, np.zeros(1))
        return Table(slews * self._time, loads * self._farad, energy.reshape(len(slews), len(loads)) * self._joule)

    def _leaks(self, group: Group, grounds: set[str]) -> float:
        """Watts: of all states if the library says that, else the mean of its states."""
        listed = [one for one in group.all("leakage_power") if _counts(one, grounds)]
        whole = [one for one in listed if "when" not in one.attributes] or listed
        values = [one.number("value") for one in whole] or [group.number("cell_leakage_power")]
        return sum(values) / len(values) * self._leakage


def _counts(group: Group, grounds: set[str]) -> bool:
    return group.attributes.get("related_pg_pin") not in grounds


def _flip_flop(group: Group) -> FlipFlop | None:
    """ValueError for what is neither a gate nor a plain flip-flop."""
    for kind in ("latch", "statetable", "ff_bank", "latch_bank"):
        if any(group.all(kind)):
            raise ValueError(f"cell {group.arguments} has a {kind}; only gates and flip-flops can be simulated")
    for state in group.all("ff"):
        if {"clear", "preset"} & state.attributes.keys():
            raise ValueError(f"flip-flop {group.arguments} has an asynchronous reset, which cannot be simulated")
        names = [name.strip().strip('"') for name in state.arguments.split(",")]
        clock = state.attributes.get("clocked_on", "").strip("!'() ")
        return FlipFlop(names[0], "".join(names[1:2]), state.attributes.get("next_state", ""), clock)
    return None


def clock_gate_of(group: Group) -> ClockGate | None:
    """ValueError for a clock gate of another kind than a latch before the rising edge."""
    kind = group.attributes.get("clock_gating_integrated_cell", "")
    if not kind:
        return None
    roles = ("clock", "out", "enable", "test")
    pins = {
        role: pin.arguments
        for pin in group.all("pin")
        for role in roles
        if pin.attributes.get(f"clock_gate_{role}_pin") == "true"
    }
    if not kind.startswith("latch_posedge") or not pins.keys() >= {"clock", "out", "enable"}:
        raise ValueError(f"clock gate {group.arguments} is {kind}; only those of kind latch_posedge can be simulated")
    return ClockGate(pins["clock"], pins["out"], pins["enable"], pins.get("test"))


def _unit(library: Group, name: str) -> float:
    return _scaled(library.attributes.get(name, "1"))


def _scaled(text: str) -> float:
    """1ps: 1e-12. A bare number has no prefix."""
    match = _UNIT.fullmatch(text)
    if match:
        return float(match[1]) * _PREFIX[match[2].lower()]
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no unit of a Liberty file") from None


def _numbers(table: Group, text: str) -> Floats:
    numbers = []
    for word in text.replace('"', " ").replace(",", " ").split():
        try:
            numbers.append(float(word))
        except ValueError:
            raise ValueError(f"a table of {table.kind} has {word!r} for a number") from None
    return np.array(numbers)
