"""Harmonia's order of tiles: C [M, K] = A [M, N] · B [N, K] in tiles of m rows and k columns, all of N at once.

Column-major: columns of B stay on the chip until all of A has passed. Row-major: rows of A stay until all of B has.
What stays is read once from memory, the other as often as there are tiles of what stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from .events import check_positive


class Order(StrEnum):
    column = "column"
    row = "row"


@dataclass(frozen=True)
class Product:
    """Sizes of a product and of its tiles."""

    rows: int  # M
    inner: int  # N
    columns: int  # K
    tile_rows: int  # m
    tile_columns: int  # k

    def __post_init__(self) -> None:
        check_positive(**vars(self))


@dataclass(frozen=True)
class Visit:
    """A tile of C by its number of rows and of columns, and how many values of A and B are read for it."""

    row: int
    column: int
    read_a: int
    read_b: int


def visits(product: Product, order: Order) -> Iterator[Visit]:
    """All tiles of C, in order."""
    rows = _parts(product.rows, product.tile_rows)
    columns = _parts(product.columns, product.tile_columns)
    if order is Order.column:
        for column, width in enumerate(columns):
            for row, height in enumerate(rows):
                yield Visit(row, column, height * product.inner, width * product.inner * (row == 0))
        return
    for row, height in enumerate(rows):
        for column, width in enumerate(columns):
            yield Visit(row, column, height * product.inner * (column == 0), width * product.inner)


def external_reads(product: Product, order: Order) -> int:
    """Values read from memory: K/k · M·N + N·K by columns, M/m · N·K + M·N by rows, parts of a tile counted whole."""
    a, b = product.rows * product.inner, product.inner * product.columns
    if order is Order.column:
        return -(-product.columns // product.tile_columns) * a + b
    return -(-product.rows // product.tile_rows) * b + a


def better_order(product: Product) -> Order:
    """The one that reads less; by columns where both read the same.

    Rows of A that fit one tile are best kept: everything is read once. Many rows want columns kept if tiles are wider
    than high. The paper has it the other way round: by its own formulas it cannot be.
    """
    return min(Order, key=lambda order: external_reads(product, order))


def _parts(size: int, tile: int) -> list[int]:
    return [min(tile, size - first) for first in range(0, size, tile)]
