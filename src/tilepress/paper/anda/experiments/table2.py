"""Table II as its rows: a text, a model and a method each."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ....compression.search import Products
from ....simulate.layers import find_transformer
from ...published import read_paper

REFERENCE = "Omniquant"  # W4A16 in groups of 128, which losses are relative to
SEARCHED = ("Anda 0.1 %", "Anda 1 %")


@dataclass(frozen=True)
class Row:
    """One row, by the names that are printed."""

    model: str
    text: str
    method: str

    @property
    def name(self) -> str:
        return f"{self.model}, {self.text}, {self.method}"

    @property
    def reference(self) -> "Row":
        """What its loss is relative to."""
        return Row(self.model, self.text, REFERENCE)

    def printed(self, column: str) -> float:
        value: float = _values()[self.name, column]
        return value

    def has(self, column: str) -> bool:
        return (self.name, column) in _values()


def rows() -> Iterator[Row]:
    """In the order of the file: text by text, method by method."""
    return (Row(*name.split(", ")) for name in dict.fromkeys(row for row, _ in _values()))


@cache
def models() -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.model for row in rows()))


def products_of(model: str) -> Products:
    """Products that the four tensor types take part in, for each number of the hidden states."""
    transformer = find_transformer(model)
    qkv, o, u, d = (count // transformer.hidden for count in transformer.products)
    return qkv, o, u, d


@cache
def _values() -> dict[tuple[str, str], float]:
    return read_paper("anda").values("table2")
