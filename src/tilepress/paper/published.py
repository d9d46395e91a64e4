"""What a paper prints: the tables of its `published.yaml`, each value with its place.

items:                      # ITEM → tables, whose cells are compared with ours, in this order
  table1:
    - place: section 3.1, table 1
      unit: "%"
      quantity: share       # where it is not that of the unit: `tolerance` has them, and says what counts as a match
      follows: table 6      # what it can be worked out from, other cells or an input; then it is no prediction
      columns: [DDR, HBM]   # or a mapping, COLUMN: {unit: …, quantity: …, relation: …}, where columns differ
      rows:
        N=1: [97.4, 89.8]   # null is an empty cell
inputs:                     # NAME → tables that experiments compute with and that no cell is compared with
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)  # fmt: skip

from .._bounded import UnreadableError, read_bounded_text
from .._validation import problems
from .item import Experiment, Item, Kind, Ours, Published, Relation
from .tolerance import Quantity, quantity_of

_LARGEST = 256_000  # bytes of a file, which has 20,000
Printed = StrictInt | StrictFloat | StrictStr


class PublishedError(ValueError):
    """A file of published values that says too little or too much; the message names the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Column(_Part):
    """What a column has of its own."""

    unit: str | None = None
    quantity: Quantity | None = None
    relation: Relation | None = None


class Table(_Part):
    """`columns` and `rows` as printed; the rest as in `Published`."""

    place: Annotated[str, Field(min_length=1)]
    unit: str = ""
    quantity: Quantity | None = None
    relation: Relation = "="
    follows: str = ""
    columns: Annotated[dict[str, Column], Field(min_length=1)]
    rows: Annotated[dict[str, list[Printed | None]], Field(min_length=1)]

    @field_validator("columns", mode="before")
    @classmethod
    def _by_name(cls, columns: Any) -> Any:
        return {name: {} for name in columns} if isinstance(columns, list) else columns

    @model_validator(mode="after")
    def _is_rectangular(self) -> "Table":
        for row, values in self.rows.items():
            if len(values) != len(self.columns):
                raise ValueError(f"row {row!r} has {len(values)} values for {len(self.columns)} columns")
        return self

    def cells(self) -> Iterator[Published]:
        for row, values in self.rows.items():
            for (name, column), value in zip(self.columns.items(), values, strict=True):
                if value is not None:
                    yield self._cell(row, name, column, value)

    def _cell(self, row: str, name: str, column: Column, value: Printed) -> Published:
        unit = self.unit if column.unit is None else column.unit
        quantity = column.quantity or self.quantity or quantity_of(unit)
        return Published(row, name, value, unit, self.place, quantity, column.relation or self.relation, self.follows)


class _File(_Part):
    items: dict[str, list[Table]]
    inputs: dict[str, list[Table]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """Item → what is published of it; a name → what experiments compute with."""

    name: str
    items: Mapping[str, Sequence[Published]]
    inputs: Mapping[str, Sequence[Published]]

    def item(
        self,
        name: str,
        title: str,
        kind: Kind,
        experiment: Experiment,
        notes: Sequence[str] = (),
        seconds: float = 1,
    ) -> Item:
        """The item of that name in the file."""
        return Item(f"{self.name}/{name}", title, kind, self.items[name], experiment, notes, seconds)

    def values(self, name: str) -> dict[tuple[str, str], Any]:
        """(row, column) → what is printed, of an item or an input."""
        return {one.cell: one.value for one in (self.items.get(name) or self.inputs[name])}

    def absent(self, name: str, note: str) -> Iterator[Ours]:
        """The cells of an item that cannot be had here; `note` says why."""
        return (Ours(one.row, one.column, None, one.unit, note) for one in self.items[name])


@cache
def read_paper(name: str | Path) -> Paper:
    """The paper called `name`, or of a path that whose `published.yaml` is in this folder, called as the folder is."""
    folder = name if isinstance(name, Path) else Path(__file__).parent / name
    path = folder / "published.yaml"
    try:
        file = _File.model_validate(yaml.safe_load(read_bounded_text(path, _LARGEST)))
    except ValidationError as error:
        raise PublishedError(f"{path}: {problems(error, 'the file')}") from error
    except yaml.YAMLError as error:
        raise PublishedError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except (OSError, UnreadableError) as error:
        raise PublishedError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return Paper(folder.resolve().name, _cells(file.items), _cells(file.inputs))


def _cells(tables: Mapping[str, Sequence[Table]]) -> dict[str, list[Published]]:
    return {name: [cell for table in of_one for cell in table.cells()] for name, of_one in tables.items()}
