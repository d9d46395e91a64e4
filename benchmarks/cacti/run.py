"""DECA's memories by CACTI: runs every configuration beside this file and keeps what comes out for `hardware`.

    python benchmarks/cacti/run.py CACTI

CACTI is the program, in the folder of its sources, where it finds its tech_params. Kept results are of CACTI 7.0, from
the sources in PyPI's hwcomponents-cacti 1.0.40: `make -f cacti.mk TAG=dbg OPT="-O1 -DNTHREADS=1"`. A configuration is
common.cfg and then its own file, whose lines win.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "src" / "tilepress" / "hardware" / "cacti.json"
CONDITIONS = {"tool": "CACTI 7.0", "node": 22, "voltage": 0.8, "temperature": 360}  # voltage: tech_params/22nm.dat
NUMBER = r"\s*([\d.e+-]+)"
# What is kept: pattern in the output, and the factor to mm², pJ, mW and ns.
FIGURES = {
    "read_energy": (rf"Total dynamic read energy per access \(nJ\):{NUMBER}", 1e3),
    "write_energy": (rf"Total dynamic write energy per access \(nJ\):{NUMBER}", 1e3),
    "search_energy": (rf"Total dynamic associative search energy per access \(nJ\):{NUMBER}", 1e3),
    "leakage": (rf"Total leakage power of a bank \(mW\):{NUMBER}", 1.0),
    "gate_leakage": (rf"Total gate leakage power of a bank \(mW\):{NUMBER}", 1.0),
    "access_time": (rf"Access time \(ns\):{NUMBER}", 1.0),
}
SIZE = re.compile(rf"Cache height x width \(mm\):{NUMBER} x{NUMBER}")


def configurations() -> dict[str, str]:
    """The whole text of each, by name."""
    common = (HERE / "common.cfg").read_text("utf-8")
    own = sorted(path for path in HERE.glob("*.cfg") if path.stem != "common")
    return {path.stem: common + path.read_text("utf-8") for path in own}


def run(cacti: Path, configuration: str) -> dict[str, float]:
    """What CACTI gives: mm², pJ, mW, ns."""
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(configuration)
        file.flush()
        command = [str(cacti.resolve()), "-infile", file.name]
        done = subprocess.run(command, cwd=cacti.resolve().parent, capture_output=True, text=True, check=False)
    size = SIZE.search(done.stdout)
    if size is None:
        raise SystemExit(f"{cacti} gave no area: {(done.stdout + done.stderr)[-300:]}")
    found = {name: (re.search(pattern, done.stdout), factor) for name, (pattern, factor) in FIGURES.items()}
    figures = {name: float(match[1]) * factor for name, (match, factor) in found.items() if match}
    return {key: float(f"{value:.6g}") for key, value in {"area": float(size[1]) * float(size[2]), **figures}.items()}


def main(cacti: Path) -> None:
    memories = {name: run(cacti, text) for name, text in configurations().items()}
    KEPT.write_text(json.dumps({**CONDITIONS, "memories": memories}, indent=2) + "\n", "utf-8")
    print(KEPT.read_text("utf-8"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
