"""How far an item's cells move when a fitted constant does: what held-out cells rest on, though nothing was fitted to
them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..evidence import Fitted
from ..records import Reproduction
from .comparison import run
from .evidence import fitted_constants
from .item import Item, Track

FACTOR = 1.1
LEAST = 1e-3  # of a value: less is what random bitmasks and whole cycles make of it


@dataclass(frozen=True)
class Moved:
    """A cell whose value changes, by so much of it, when a constant is multiplied by a factor; infinite where a word
    changes, or a zero does."""

    constant: str
    record: Reproduction
    change: float


def sensitivity(item: Item, track: Track, options: Mapping[str, Any], factor: float = FACTOR) -> list[Moved]:
    """Cells of the paper that move, constant after constant."""
    before = _cells(item, options)
    moved = []
    for name in track(list(fitted_constants()), "constants"):
        with changed(name, factor):
            after = _cells(item, options)
        moved += [Moved(name, one, change) for one in before if (change := _change(one, after)) and abs(change) > LEAST]
    return moved


@contextmanager
def changed(name: str, factor: float) -> Iterator[None]:
    """A fitted constant multiplied by `factor`, wherever it is read."""
    constant = fitted_constants()[name]
    other = replace(constant, value=constant.value * factor)
    _put(constant, other)
    try:
        yield
    finally:
        _put(other, constant)


def _put(old: Fitted, new: Fitted) -> None:
    """Where the one is declared the other is, and nothing that was computed before is remembered."""
    from ..roofsurface.decompressors import LIBXSMM_COUNTS
    from ..simulate import arrays, deca
    from .deca.experiments.schemes import speed

    homes: Sequence[dict[Any, Fitted]] = (LIBXSMM_COUNTS, deca.FITTED, arrays.FITTED)
    for home in homes:
        home.update({key: new for key, one in home.items() if one is old})
    speed.cache_clear()


def _cells(item: Item, options: Mapping[str, Any]) -> list[Reproduction]:
    return [one for one in run(item, lambda sequence, _: sequence, options, "") if one.state]


def _change(one: Reproduction, after: Sequence[Reproduction]) -> float:
    (value,) = [other.value for other in after if (other.row, other.column) == (one.row, one.column)]
    if value == one.value:
        return 0.0
    if isinstance(value, str) or isinstance(one.value, str) or not one.value or value is None:
        return float("inf")
    return value / one.value - 1
