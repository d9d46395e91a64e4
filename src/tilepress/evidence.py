"""Kinds of evidence, and what decides them: which constants were fitted to which cells of a paper, and which choices
were made with cells in sight. Every simulator declares its own beside its constants; `paper.evidence` reads them all.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

# A prediction, then what is worth less and less: an inequality or identity; what follows from another cell or an input;
# a cell that a structure or reading was chosen with in sight; and one that a constant was fitted to.
Evidence = Literal["held-out", "one-sided", "derived", "chosen", "fitted"]
KINDS: tuple[Evidence, ...] = get_args(Evidence)


@dataclass(frozen=True)
class Cells:
    """Cells of a paper's item: rows and columns by name, `*` for any text and `?` for any character."""

    item: str
    row: str = "*"
    column: str = "*"

    def __str__(self) -> str:
        parts = [one for one in (self.row, self.column) if one != "*"]
        return f"{self.item} ({'; '.join(parts)})" if parts else self.item

    def include(self, item: str, row: str, column: str) -> bool:
        return item == self.item and fnmatchcase(row, self.row) and fnmatchcase(column, self.column)


@dataclass(frozen=True)
class Fitted:
    """A constant that no paper prints, and the cells that it was set by. `why`: what they say of it, or what else it
    was set by where that is no cell."""

    value: float
    unit: str
    cells: tuple[Cells, ...]
    why: str = ""


@dataclass(frozen=True)
class Choice:
    """A structure, or a reading of the text, that was chosen with `cells` in sight."""

    what: str
    cells: tuple[Cells, ...]
