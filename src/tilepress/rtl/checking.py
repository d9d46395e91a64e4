"""What holds of a unit in every state that it can reach, whatever comes at its inputs: proved by Yosys' ABC.

A monitor stands beside a unit and says in each cycle which of its properties do not hold. Yosys makes one circuit of
gates of both, in which all inputs are free, and ABC searches for an invariant under which none of these wires is ever
up (property-directed reachability). So a proof has no depth: it is of all inputs, for ever. That it is not empty shows
a trace, found by bounded model checking, in which the monitor's `reached` comes up.
"""

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from amaranth.hdl import Cat, Const, Elaboratable, Fragment, Module, Signal, Value
from amaranth.lib.wiring import Component

from .yosys import convert, ports_of, quoted, run_yosys

_SIMPLER = "scleanup; scorr; dc2; scorr; scleanup"
_TO_GATES = (
    "proc",
    "flatten",
    "opt",
    "memory -nordff",
    "opt -full",
    "techmap",
    "opt",
    "dffunmap",
    "setundef -anyseq",
    "aigmap",
    "opt_clean",
)


class Monitor(Elaboratable):
    """A `unit` and what must hold of it: a wire for each of `properties`. `reached` comes up in some run."""

    properties: tuple[str, ...]

    def __init__(self, unit: Component) -> None:
        self.unit = unit
        self.watched = Signal(len(self.properties) + 1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = Fragment.get(self.unit, platform)  # now, so that signals in it can be named
        holds, reached, assumption = self.holds(m), self.reached(m), self.assumed(m)
        before, allowed = Signal(init=1), Signal()
        m.d.comb += allowed.eq(before & assumption)
        m.d.sync += before.eq(allowed)
        m.d.comb += self.watched.eq(Cat(*(allowed & ~holds[name] for name in self.properties), allowed & reached))
        return m

    def holds(self, m: Module) -> Mapping[str, Value]:
        """Of each property, one bit."""
        raise NotImplementedError

    def reached(self, m: Module) -> Value:
        """What happens in a run that is worth the proof."""
        raise NotImplementedError

    def assumed(self, m: Module) -> Value:
        """What inputs keep to, in this cycle and all before it."""
        return Const(1)


@dataclass(frozen=True)
class Proof:
    """All `properties` of a `monitor` hold in every state. `flip_flops` and `gates`: of the circuit. `frames`: cycles
    from reset after which the search closed. `reached`: cycles of the trace that shows what the proof is about."""

    monitor: str
    properties: tuple[str, ...]
    flip_flops: int
    gates: int
    frames: int
    reached: int
    seconds: float

    @property
    def figures(self) -> list[tuple[str, int | float, str]]:
        """Metric, value, unit."""
        return [
            ("properties", len(self.properties), ""),
            ("flip_flops", self.flip_flops, ""),
            ("gates", self.gates, ""),
            ("frames", self.frames, ""),
            ("reached", self.reached, "cycles"),
            ("time", self.seconds, "s"),
        ]


class Broken(AssertionError):
    """A property that does not hold; the message says which, and after how many cycles."""


def prove(name: str, monitor: Monitor, seconds: int = 300, cycles: int = 60) -> Proof:
    """Broken if a property does not hold, RuntimeError if in so many `seconds` nothing was found, or if in so many
    `cycles` the monitor's `reached` never comes up."""
    begin, count = time.monotonic(), len(monitor.properties)
    with TemporaryDirectory() as folder:
        circuit = Path(folder) / "unit.aig"
        _write_circuit(monitor, circuit)
        flip_flops, gates = _sizes(circuit)
        search = _abc(circuit, 0, count, f"orpos; {_SIMPLER}; pdr -v -T {seconds}")
        if "All outputs solved" in search:  # already by simplification, which leaves nothing to search
            search = _abc(circuit, 0, count, f"orpos; scleanup; pdr -v -T {seconds}")
        if "was asserted in frame" in search:
            raise Broken(_broken(name, monitor, circuit, seconds))
        if "Property proved" not in search:
            raise RuntimeError(f"{name}: no proof within {seconds} s")
        trace = _abc(circuit, count, 1, f"{_SIMPLER}; bmc3 -F {cycles} -T {seconds}")
    reached = re.search(r"was asserted in frame (\d+)", trace)
    if reached is None:
        raise RuntimeError(f"{name}: what is proved says nothing, for in {cycles} cycles nothing happens")
    frames = re.findall(r"^ *(\d+) :", search, re.MULTILINE)
    passed = time.monotonic() - begin
    return Proof(name, monitor.properties, flip_flops, gates, int(frames[-1]), int(reached[1]) + 1, passed)


def _write_circuit(monitor: Monitor, path: Path) -> None:
    """As AIGER, with the bits of `watched` as outputs."""
    inputs = {name: port for name, port in ports_of(monitor.unit).items() if port[1]}
    source = path.with_suffix(".il")
    source.write_text(convert(monitor, "monitor", inputs | {"watched": (monitor.watched, False)}))
    read = [f"read_rtlil {quoted(source)}", "hierarchy -check -top monitor"]
    run_yosys([*read, *_TO_GATES, f"write_aiger -zinit {quoted(path)}"])


def _sizes(path: Path) -> tuple[int, int]:
    """Flip-flops and gates of an AIGER file."""
    with path.open("rb") as file:
        _, _, _, flip_flops, _, gates, *_ = file.readline().split()
    return int(flip_flops), int(gates)


def _broken(name: str, monitor: Monitor, circuit: Path, seconds: int) -> str:
    search = _abc(circuit, 0, len(monitor.properties), f"bmc3 -T {seconds}")
    found = re.search(r"Output (\d+) .* asserted in frame (\d+)", search)
    if found is None:
        return f"{name}: a property does not hold"
    return f"{name}: {monitor.properties[int(found[1])]!r} does not hold in cycle {found[2]}"


def _abc(circuit: Path, first: int, count: int, commands: str) -> str:
    """What ABC prints of some outputs of a circuit and all that they depend on."""
    package = find_spec("pyosys")
    program = Path((package and package.origin) or "").with_name("yosys-abc")
    select = f"read_aiger {quoted(circuit)}; &get; &cone -O {first} -R {count}; &put"
    return subprocess.run([program, "-c", f"{select}; {commands}"], capture_output=True, text=True, check=True).stdout
