"""Keep what `tilepress reproduce --records FILE` gave: `python benchmarks/keep.py FILE results/FOLDER/DATE-CPU.json`.

Items of FILE take the place of their older records there. Studies that other files in results/ hold stay, for they were
larger: of such an item come only the paper's cells that those lack and that cannot be had."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilepress.records import Reproduction, to_json
from tilepress.report import read_records

RESULTS = Path(__file__).parent / "results"


def keep(source: Path, target: Path) -> list[Reproduction]:
    """What `target` shall hold."""
    elsewhere = _reproductions([path for path in sorted(RESULTS.rglob("*.json")) if path.resolve() != target.resolve()])
    new = [replace(one, command=_without_file(one.command)) for one in _reproductions([source])]
    old = [one for one in _reproductions([target] if target.exists() else []) if one.item not in _items(new)]
    studied, cells = _items(elsewhere), {_cell(one) for one in elsewhere}
    return old + [
        one for one in new if one.item not in studied or (one.state == "not possible here" and _cell(one) not in cells)
    ]


def _reproductions(paths: Sequence[Path]) -> list[Reproduction]:
    return [one for one in read_records(paths) if isinstance(one, Reproduction)]


def _cell(record: Reproduction) -> tuple[str, str, str]:
    return record.item, record.row, record.column


def _items(records: Sequence[Reproduction]) -> set[str]:
    return {one.item for one in records}


def _without_file(command: str) -> str:
    return re.sub(r" --records \S+", "", command)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(Path, sys.argv[1:])
    records = keep(source, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(to_json(records) + "\n", "utf-8")
    print(f"{target}: {len(records)} records of {len(_items(records))} items")
