"""What a unit costs in gates, or in the cells of a library: Yosys maps it, ABC optimises it.

Memories stay as they are and count in bits: on a chip they come from a memory compiler, and what they cost is for
`hardware.technology` to say. So paths begin and end at flip-flops, ports and memories, and delay lacks wires and the
time of a memory's own reading.

With a library, registers become its smallest flip-flop, and those that share an enable one clock gate, from
`GATED_BITS` bits on, if the library has such a cell.
"""

import gzip
import json
import lzma
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .state_cells import StateCells, state_cells
from .units import Unit
from .verilog import module_name
from .yosys import quoted, rtlil_of, run_yosys

_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress}
# ABC's own script for libraries, then buffers for what drives many inputs, sizes, and the time of the longest path.
_ABC = "+strash;&get,-n;&fraig,-x;&put;scorr;dc2;strash;&get,-n;&dch,-f;&nf;&put;buffer,-c;topo;{size}stime,-p"
_SIZE = "upsize;dnsize;"
GATED_BITS = 3  # as synthesis tools have it by default
MEMORY = "$mem_v2"
NOT_CELLS = (MEMORY, "$scopeinfo")


@dataclass(frozen=True)
class Synthesis:
    """`cells`: gates and flip-flops; `memory_bits` are apart. With a library: `clock_gates`, which are cells, too,
    `area` in its unit, `delay` in ps of the longest path. Without: `levels`, the gates on it."""

    cells: int
    flip_flops: int
    memory_bits: int
    clock_gates: int | None = None
    area: float | None = None
    delay: float | None = None
    levels: float | None = None


@dataclass(frozen=True)
class Options:
    """With a library. `size`: let ABC choose among the sizes of a cell, for speed and then for area. `gate_clocks`:
    where the library has a cell for it."""

    size: bool = False
    gate_clocks: bool = True

    @property
    def labels(self) -> dict[str, str]:
        """Of records: what is not as usual."""
        unusual = {"size": "chosen"} if self.size else {}
        return unusual if self.gate_clocks else unusual | {"clocks": "not gated"}


USUAL = Options()


def synthesize(unit: Unit, liberty: Sequence[Path] = (), options: Options = USUAL) -> Synthesis:
    """`liberty`: the files of one library, each plain, .gz or .xz; without any, Yosys' own gates are counted."""
    return mapped(unit, liberty, options)[0]


def mapped(unit: Unit, liberty: Sequence[Path] = (), options: Options = USUAL) -> tuple[Synthesis, dict[str, Any]]:
    """Its costs, and the module of cells as Yosys' `write_json` gives it."""
    name = module_name(unit)
    with TemporaryDirectory() as folder:
        here = Path(folder)
        files = [_plain(path, here) for path in liberty]
        (here / "unit.il").write_text(rtlil_of(unit.component(), name))
        states = state_cells(_text(path) for path in files)
        if not options.gate_clocks:
            states = replace(states, clock_gate=None)
        try:
            log = run_yosys(_commands(here, name, files, states, options.size))
        except RuntimeError as error:
            given = ", ".join(map(str, liberty)) or "Yosys' own gates"
            raise RuntimeError(f"{unit.name} cannot be mapped to {given}: {error}") from error
        flat, generic, cells = (_statistics(here / f"{stage}.json") for stage in ("flat", "generic", "mapped"))
        netlist = json.loads((here / "netlist.json").read_text())["modules"][name]
    counts = generic["num_cells_by_type"]
    costs = Synthesis(
        cells=cells["num_cells"] - sum(cells["num_cells_by_type"].get(kind, 0) for kind in NOT_CELLS),
        clock_gates=cells["num_cells_by_type"].get(states.clock_gate[0], 0) if states.clock_gate else None,
        flip_flops=sum(count for kind, count in counts.items() if "DFF" in kind),
        memory_bits=flat["num_memory_bits"],
        area=cells["area"] if liberty else None,
        delay=_last(r"Delay = *([\d.]+) ps", log) if liberty else None,
        levels=None if liberty else _last(r"Longest topological path in .*\(length=(\d+)\)", log),
    )
    return costs, netlist


def liberty_text(path: Path) -> str:
    """Of a file that is plain, .gz or .xz."""
    with TemporaryDirectory() as folder:
        return _text(_plain(path, Path(folder)))


def _commands(here: Path, name: str, files: Sequence[Path], states: StateCells, size: bool) -> list[str]:
    def statistics(stage: str, options: str = "") -> str:
        return f"tee -q -o {quoted(here / f'{stage}.json')} stat -json {options}"

    library = " ".join(f"-liberty {quoted(path)}" for path in files)
    to_cells = _to_cells(library, states, _ABC.format(size=_SIZE if size else "")) if files else ["abc"]
    # Where clocks are gated, a reset is one of the values that an enable lets in.
    opt = "opt -nosdff" if states.clock_gate else "opt"
    return [
        f"read_rtlil {quoted(here / 'unit.il')}",
        f"hierarchy -check -top {name}",
        *("proc", "check -assert", "flatten", opt, "wreduce", "peepopt", "opt_clean", "alumacc", opt),
        statistics("flat"),
        *("memory -nomap", "opt_clean", "setattr -unset init w:*", "techmap", f"{opt} -fast"),
        statistics("generic"),
        *to_cells,
        "opt_clean",
        statistics("mapped", library),
        f"write_json {quoted(here / 'netlist.json')}",
        *([] if library else ["ltp -noff"]),
    ]


def _to_cells(library: str, states: StateCells, script: str) -> list[str]:
    commands = [
        " ".join(["dfflibmap", library, *(f"-dont_use {name}" for name in states.unused)]),
        f"abc {library} -script {script}",
    ]
    if states.clock_gate is None:
        return commands
    name, pins = states.clock_gate
    gate = f"clockgate -pos {name} {pins.enable}:{pins.clock}:{pins.output} -min_net_size {GATED_BITS}"
    return [f"{gate} -tie_lo {pins.test}" if pins.test else gate, *commands]


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace")


def _plain(path: Path, folder: Path) -> Path:
    """The path of an unpacked copy, or itself."""
    unpack = _UNPACK.get(path.suffix)
    if unpack is None:
        if not path.is_file():
            raise FileNotFoundError(2, "there is no such file", str(path))
        return path.absolute()
    try:
        text = unpack(path.read_bytes())
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}") from error
    copy = folder / path.stem
    copy.write_bytes(text)
    return copy


def _statistics(path: Path) -> dict[str, Any]:
    """Of the one module; before the text of the JSON, Yosys may print more."""
    text = path.read_text()
    (module,) = json.loads(text[text.index("{\n") :])["modules"].values()
    return dict(module)


def _last(pattern: str, log: str) -> float | None:
    """The number that was printed last."""
    found = re.findall(pattern, log)
    return float(found[-1]) if found else None
