"""Components for Yosys, and Yosys itself, run in a process of its own: an error of its ends the process."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from amaranth import Const, Value
from amaranth.back import rtlil
from amaranth.lib.wiring import Component, In

_RUN = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.stdin.read().splitlines():
    libyosys.run_pass(command, design)
"""


def rtlil_of(component: Component, name: str) -> str:
    """A component and all in it as RTLIL, its top module called `name`."""
    from amaranth.hdl._ir import PortDirection  # which convert() wants, and nothing public has

    ports: dict[str, tuple[Any, Any]] = {}
    for port, word, is_input in ports_of(component):
        ports[port] = (word, PortDirection.Input if is_input else PortDirection.Output)
    return str(rtlil.convert(component, name=name, ports=ports, emit_src=False))


def ports_of(component: Component) -> Iterator[tuple[str, Any, bool]]:
    """Name, value, and whether it is an input, of each port that has a wire: a stream that is always ready has none."""
    for path, member, value in component.signature.flatten(component):
        word = Value.cast(value)
        if not isinstance(word, Const):
            yield "_".join(map(str, path)), word, member.flow == In


def run_yosys(commands: Sequence[str]) -> str:
    """What Yosys prints when it runs these commands one after another. RuntimeError with its own words if it fails."""
    done = subprocess.run([sys.executable, "-c", _RUN], input="\n".join(commands), capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR: ")]
        raise RuntimeError(f"Yosys failed: {' '.join(errors).removeprefix('ERROR: ') or done.stderr[-200:]}")
    return done.stdout


def quoted(path: Path) -> str:
    """As Yosys takes a file's name."""
    return f'"{path}"'
