"""`make readme`: put the table that `tilepress formats --markdown` prints, and the speeds that `make bench` kept, into
README.md."""

import json
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
RESULTS = Path(__file__).parent / "results"
FORMATS = "<!-- tilepress formats --markdown -->\n"
PACKING, SPEEDS = "<!-- packing -->\n", "<!-- speeds -->\n"
END = "<!-- end -->\n"

SHAPE = "14336x4096"
MACHINES = {  # part of a result file's name: what to call the machine, and the peer to hold against
    "neoverse-n1": ("2-core Neoverse-N1", "torch KleidiAI int4:g32"),
    "xeon": ("16-core Xeon with AMX", "torch bfloat16"),
}
ENTRANTS = ["int4:g32+int8", "int4:g32", "mxfp4", "e4m3", "bf16@50%", "int8:row+int8", "int8:row@50%+int8"]
ENTRANTS += ["int4:g32+bfp:g32:m7", "int4:g32+bfp:g32:m8"]
BATCHES = [1, 4, 16, 512]


def formats_table() -> str:
    command = [sys.executable, "-m", "tilepress", "formats", "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packing_table() -> str:
    """Packing and unpacking at 50 % density on both machines."""
    machines = [(machine, _latest(part)) for part, (machine, _) in MACHINES.items()]
    lines = [["format", *(f"{machine}: {what}" for machine, _ in machines for what in ("pack", "unpack"))]]
    lines[0] += ["size", "peak memory, 2 cores"]
    lines.append(["---", *["---:"] * 6])
    for format in ["int4:g32", "int8:row", "mxfp4", "e4m3", "bf16"]:
        name = f"{format}.{SHAPE}.d0.5"
        times = [f"{1e3 * values[f'{name}.{what}']:.0f} ms" for _, values in machines for what in ("pack", "unpack")]
        values = machines[0][1]
        rest = [f"{values[f'{name}.size']:.1f} MB", f"{values[f'{name}.peak_over_size']:.2f} ×"]
        lines.append([f"`{format}`", *times, *rest])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def speeds_table() -> str:
    """Time and ratio of every entrant on both machines, from the latest results of each."""
    lines = [
        ["machine", "weights + activations", *(f"batch {batch}" for batch in BATCHES), "% of read, batch 1", "× of"]
    ]
    lines.append(["---", "---", *["---:"] * (len(BATCHES) + 1), "---"])
    for part, (machine, peer) in MACHINES.items():
        values = _latest(part)
        for name in ENTRANTS:
            cells = [_cell(values, f"{name}.{SHAPE}.b{batch}", peer) for batch in BATCHES]
            share = values[f"{name}.{SHAPE}.b1.share_of_read_bandwidth"]
            lines.append([machine, f"`{name}`", *cells, f"{100 * share:.0f}", peer])
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _latest(part: str) -> dict[str, float]:
    path = max(path for path in RESULTS.glob("*.json") if part in path.name)
    return {record["name"]: record["value"] for record in json.loads(path.read_text())}


def _cell(values: dict[str, float], name: str, peer: str) -> str:
    return f"{values[f'{name}.time'] / 1e3:.2f} ms, {values[f'{name}.over.{peer}']:.2f} ×"


def with_table(readme: str, start: str, table: str) -> str:
    before, rest = readme.split(start)
    _, after = rest.split(END, 1)
    return before + start + table + END + after


TABLES = {FORMATS: formats_table, PACKING: packing_table, SPEEDS: speeds_table}

if __name__ == "__main__":
    text = README.read_text()
    for start, table in TABLES.items():
        text = with_table(text, start, table())
    README.write_text(text)
