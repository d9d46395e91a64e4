"""Kept records, as tables of README and docs take them: the newest file of a machine, and what the table is made of.

A figure whose kernels have changed since (`tilepress._builds`) is left out where the same machine has newer ones of the
same kind. Where it has none, it is shown and marked, with its date.
"""

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilepress._builds import is_current
from tilepress.records import Labels, Record, Reproduction
from tilepress.report import read_records

RESULTS = Path(__file__).parent / "results"
ROOT = "RESULTS/"  # where results are, from the page that a table is put on
OLDER = "older build"
WHY = "*Older build*: kernels have changed since, or the record does not say which build it is of, and that machine "
WHY += "has no newer figures."


class Values(dict[tuple[str, Labels], Any]):
    """By metric and labels. `mark`: "older build" and the date, "" of figures of the kernels as they are."""

    mark = ""


class Reader:
    """Reads for one table; `foot` then says from what."""

    def __init__(self) -> None:
        self.files: dict[Path, str] = {}
        self.left_out = 0

    def latest(
        self, part: str, folder: Path = RESULTS, *, counts: Callable[[str], bool] = lambda command: True
    ) -> Values:
        """Values of the latest records of a machine, of commands that count; none where it was never measured."""
        path, records = self._records(part, folder)
        given = [one for one in records if counts(one.command)]
        current = [one for one in given if is_current(one.version)]
        self.left_out += len(given) - len(current) if current else 0
        values = Values({(one.metric, one.labels): one.value for one in current or given})
        if path and given:
            values.mark = "" if current else f"{OLDER} ({path.name[:10]})"
            self.files[path] = values.mark
        return values

    def numbers(self, folder: Path) -> Values:
        """Values of the latest records there, which are not of kernels' speed and have no mark."""
        path, records = self._records("", folder)
        if path:
            self.files.setdefault(path, "")
        return Values({(one.metric, one.labels): one.value for one in records})

    def cells(self, study: str, item: str) -> dict[tuple[str, str], Reproduction]:
        """(row, column) → reproduction. They are of numbers, not of kernels' speed, and have no mark."""
        path, records = self._records("", RESULTS / study)
        found = {(one.row, one.column): one for one in records if isinstance(one, Reproduction) and one.item == item}
        if path and found:
            self.files.setdefault(path, "")
        return found

    def foot(self) -> str:
        """Lines below a table; "" below one of nothing."""
        if not self.files:
            return ""
        said = [f"From {' and '.join(map(self._link, sorted(self.files)))}."]
        if any(self.files.values()):
            said.append(WHY)
        if self.left_out:
            said.append(f"{self.left_out} figures of older builds are left out.")
        return "\n" + textwrap.fill(" ".join(said), 120, break_long_words=False, break_on_hyphens=False) + "\n"

    def _link(self, path: Path) -> str:
        older = f" ({OLDER})" if self.files[path] else ""
        return f"[{path.name}]({ROOT}{path.relative_to(RESULTS).as_posix()}){older}"

    def _records(self, part: str, folder: Path) -> tuple[Path | None, Sequence[Record]]:
        path = max((path for path in folder.glob("*.json") if part in path.name), default=None)
        return path, read_records([path]) if path else []
