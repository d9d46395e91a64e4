"""Components for Yosys, and Yosys itself, run in a process of its own: an error of its ends the process."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from amaranth import Const, Elaboratable, Value
from amaranth.back import rtlil
from amaranth.lib.wiring import Component, In

Port = tuple[Value, bool]  # whether it is an input
_RUN = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.stdin.read().splitlines():
    libyosys.run_pass(command, design)
"""


def rtlil_of(component: Component, name: str) -> str:
    """A component and all in it as RTLIL, its top module called `name`."""
    return convert(component, name, ports_of(component))


def ports_of(component: Component) -> dict[str, Port]:
    """Ports by name."""
    ports = {}
    for path, member, value in component.signature.flatten(component):
        word = Value.cast(value)
        if not isinstance(word, Const):  # a stream that is always ready has no wire for it
            ports["_".join(map(str, path))] = (word, member.flow == In)
    return ports


def convert(design: Elaboratable, name: str, ports: Mapping[str, Port]) -> str:
    """RTLIL of a top module with these ports."""
    from amaranth.hdl._ir import PortDirection  # which convert() wants, and nothing public has

    directed = {
        port: (word, PortDirection.Input if is_input else PortDirection.Output)
        for port, (word, is_input) in ports.items()
    }
    return str(rtlil.convert(design, name=name, ports=directed, emit_src=False))


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
