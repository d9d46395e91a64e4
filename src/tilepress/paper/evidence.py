"""The evidence of a cell, from what simulators declare and from what the cell follows from; never set by hand."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from ..evidence import Choice, Evidence, Fitted

if TYPE_CHECKING:
    from .item import Item, Published


@cache
def fitted_constants() -> Mapping[str, Fitted]:
    """Constants of all simulators that were fitted to cells, "deca: memory_share" say → what was declared of it."""
    return {name: one for name, one in _declared() if isinstance(one, Fitted)}


@cache
def choices() -> Mapping[str, Choice]:
    """Structures and readings of all simulators that were chosen with cells in sight."""
    return {name: one for name, one in _declared() if isinstance(one, Choice)}


def evidence_of(item: "Item", cell: "Published") -> Evidence:
    """The least that can be said for it: fitted, chosen, derived, one-sided, and held-out where it is none of these.

    An item that works out the paper's own formula ("exact") is derived from what goes into it. A held-out cell may
    still rest on constants that were fitted to other cells.
    """
    if behind(fitted_constants(), item.name, cell):
        return "fitted"
    if behind(choices(), item.name, cell):
        return "chosen"
    if cell.follows or item.kind == "exact":
        return "derived"
    return "held-out" if cell.relation == "=" else "one-sided"


def behind(declared: Mapping[str, Fitted] | Mapping[str, Choice], item: str, cell: "Published") -> list[str]:
    """Names of those that had the cell in sight."""
    return [name for name, one in declared.items() if any(cells.include(item, *cell.cell) for cells in one.cells)]


def _declared() -> Iterator[tuple[str, Fitted | Choice]]:
    from ..simulate import arrays, deca

    for simulator, module in (("deca", deca.parameters), ("arrays", arrays.parameters)):
        for name, one in chain(module.FITTED.items(), module.CHOICES.items()):
            yield f"{simulator}: {name}", one
