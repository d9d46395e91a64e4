"""`make bench`: measure this machine and keep the records as benchmarks/results/<date>-<processor>.json."""

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path

from tilepress.records import cpu_model

RESULTS = Path(__file__).parent / "results"
COMMANDS = [
    ["doctor"],
    ["bench", "pack", "--density", "0.5"],
    ["bench", "pack", "--density", "1"],
    ["bench", "linear", "--neurons", "14336", "--batch", "1", "--batch", "16"],
    ["bench", "linear", "--neurons", "14336", "--batch", "1", "--batch", "16", "--density", "0.5"],
]


def main() -> None:
    records = [record for command in COMMANDS for record in run(command)]
    RESULTS.mkdir(exist_ok=True)
    processor = re.sub(r"[^a-z0-9]+", "-", cpu_model().lower()).strip("-")
    path = RESULTS / f"{datetime.date.today()}-{processor}.json"
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    path.write_text(f"[\n{lines}\n]\n")
    print(f"kept {len(records)} records in {path}")


def run(command: list[str]) -> list[dict[str, object]]:
    """Show a command's table as it is measured, and return its records."""
    print(f"tilepress {' '.join(command)} …", flush=True)
    tilepress = [sys.executable, "-m", "tilepress", *command, "--json"]
    found = json.loads(subprocess.run(tilepress, check=True, stdout=subprocess.PIPE).stdout)
    for record in found:
        print(f"  {record['name']:45} {record['value']} {record['unit']}")
    return found


if __name__ == "__main__":
    main()
