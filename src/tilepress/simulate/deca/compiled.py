"""What compiled code of this package is made of: decorators, records and a heap of integers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .plan import Ints

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    made: _Function = njit(cache=True)(function)
    return made


def inlined(function: _Function) -> _Function:
    made: _Function = njit(cache=True, forceinline=True)(function)
    return made


def records(
    names: Iterable[str], integer: type, shape: tuple[int, ...], fields: Mapping[str, int | Ints]
) -> NDArray[Any]:
    """numpy's records, which compiled code gets by reference: each field is an integer, zero but for `fields`. Not
    named tuples: numba's cache on disk cannot be read any more when a class that it names is gone."""
    made = np.zeros(shape, [(name, integer) for name in names])
    for name, value in fields.items():
        made[name] = value
    return made


@compiled
def push(heap: Ints, size: int, event: int) -> tuple[Ints, int]:
    if size == len(heap):
        grown = np.empty(2 * size, np.int64)
        grown[:size] = heap
        heap = grown
    place = size
    while place and heap[(place - 1) >> 1] > event:
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = event
    return heap, size + 1


@compiled
def pop(heap: Ints, size: int) -> tuple[int, int]:
    top, size = heap[0], size - 1
    last, place, child = heap[size], 0, 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if last <= heap[child]:
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = last
    return top, size
