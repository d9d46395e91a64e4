"""Mantissas that give a saving that Table II prints."""

from collections.abc import Sequence
from functools import lru_cache

from ....compression.search import Mantissas, Products, bops_saving, cheapest_first
from .table2 import Row, products_of

ROUNDING = 0.011  # the paper rounds 192/67 = 2.8657 to 2.86, and 192/62 = 3.0968 to 3.10 and to 3.09


@lru_cache(maxsize=8)
def combinations_by_saving(products: Products) -> dict[float, list[Mantissas]]:
    """Saving → combinations of 4 to 13 bits that give it."""
    combinations: dict[float, list[Mantissas]] = {}
    for mantissas in cheapest_first(products, 4, 13):
        combinations.setdefault(bops_saving(mantissas, products), []).append(mantissas)
    return combinations


def nearest_saving(row: Row) -> float:
    """The saving nearest to the printed one that mantissas of 4 to 13 bits can give."""
    printed = row.printed("BOP saving")
    return min(combinations_by_saving(products_of(row.model)), key=lambda saving: abs(saving - printed))


def combinations_of(row: Row) -> list[Mantissas]:
    """Those that give the printed saving, within its rounding."""
    printed, savings = row.printed("BOP saving"), combinations_by_saving(products_of(row.model))
    return [one for saving, alike in savings.items() if abs(saving - printed) < ROUNDING for one in alike]


def falling(combinations: Sequence[Mantissas]) -> list[Mantissas]:
    """Those that need most bits for qkv and fewest for d, as the paper says they mostly do."""
    return [one for one in combinations if one[0] >= max(one[1:]) and one[3] == min(one)]


@lru_cache(maxsize=64)
def combination(model: str, tolerance: str) -> Mantissas:
    """Mantissas that give the saving of Table II on WikiText2: of those within its rounding one that falls from qkv to
    d, if there is any, and the one whose lengths differ least."""
    row = Row(model, "WikiText2", f"Anda {tolerance}")
    near = combinations_of(row) or combinations_by_saving(products_of(model))[nearest_saving(row)]
    return min(falling(near) or near, key=lambda one: max(one) - min(one))


def tuple_text(mantissas: Mantissas) -> str:
    return f"[{', '.join(map(str, mantissas))}]"
