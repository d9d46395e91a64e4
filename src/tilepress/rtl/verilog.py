"""A unit as Verilog, after Yosys has checked it: no loop of logic, no wire with two drivers or none."""

from pathlib import Path
from tempfile import TemporaryDirectory

from .units import Unit
from .yosys import quoted, rtlil_of, run_yosys


def module_name(unit: Unit) -> str:
    return unit.name.replace("-", "_")


def verilog_of(unit: Unit) -> str:
    """The text of one file; its top module has the unit's name."""
    name = module_name(unit)
    with TemporaryDirectory() as folder:
        source, result = Path(folder) / "unit.il", Path(folder) / "unit.v"
        source.write_text(rtlil_of(unit.component(), name))
        run_yosys(
            [
                f"read_rtlil {quoted(source)}",
                f"hierarchy -check -top {name}",
                "proc",
                "opt_clean",
                "check -assert",
                "memory_collect",
                f"write_verilog -noattr {quoted(result)}",
            ]
        )
        settings = " ".join(f"{key}={value}" for key, value in unit.settings.items())
        return f"// {unit.name} {settings}\n{result.read_text()}"
