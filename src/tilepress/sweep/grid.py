"""A grid of points, read from TOML: a kind of study, what is the same for all points, and lists of what is not.

kind = "compress"
[fixed]
model = "smollm2-135m"
[grid]
weights.format = ["int4:g32", "uint3:g64"]
weights.density = [1.0, 0.5]
"""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from .._bounded import UnreadableError, read_bounded_text
from ..cluster.batch import Settings
from .studies import STUDIES, Study

LARGEST = 256_000  # bytes of a grid
MOST_POINTS = 200_000
MOST_DOTS = 32  # of a line; parsing a key takes time by the square of its parts


class GridError(ValueError):
    """A grid that cannot be followed; the message names the key."""


@dataclass(frozen=True)
class Grid:
    """`fixed` and `axes`: key → value, or values; keys have dots where TOML has tables."""

    study: Study
    fixed: Settings
    axes: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return math.prod(map(len, self.axes.values()))

    @property
    def points(self) -> Iterator[dict[str, Any]]:
        """All combinations; the last axis changes fastest. Each has the study's name as its `kind`."""
        for values in product(*self.axes.values()):
            yield {"kind": self.study.name, **self.fixed, **dict(zip(self.axes, values, strict=True))}


def read_grid(path: str | Path) -> Grid:
    """The grid in a file, all of whose points are possible; GridError names what is wrong."""
    try:
        grid = _grid(_parsed(read_bounded_text(path, LARGEST)))
        for point in grid.points:
            grid.study.check(point)
    except ValueError as error:
        raise GridError(f"{path}: {error}") from error
    return grid


def _parsed(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_DOTS and not line.lstrip().startswith("#"):
            raise UnreadableError(f"line {number} has more than {MOST_DOTS} dots: divide it into several")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise GridError(f"it is not TOML: {error}") from error


def _grid(stated: dict[str, Any]) -> Grid:
    if unknown := stated.keys() - {"kind", "fixed", "grid"}:
        raise GridError(f"unknown key {min(unknown)}: a grid has kind, [fixed] and [grid]")
    kind = stated.get("kind")
    if not isinstance(kind, str) or kind not in STUDIES:
        raise GridError(f"kind is one of {', '.join(STUDIES)}, not {kind!r}")
    fixed, axes = (_flat(name, stated.get(name, {})) for name in ("fixed", "grid"))
    if twice := fixed.keys() & axes.keys():
        raise GridError(f"{min(twice)} is in [fixed] and in [grid]: leave one out")
    for key, values in axes.items():
        _check_axis(key, values)
    grid = Grid(STUDIES[kind], fixed, axes)
    if len(grid) > MOST_POINTS:
        raise GridError(f"it has {len(grid)} points, and {MOST_POINTS} are the most: divide it into several")
    return grid


def _flat(name: str, table: Any) -> dict[str, Any]:
    """Keys with dots in the place of tables."""
    if not isinstance(table, dict):
        raise GridError(f"{name} is a table: write [{name}] above its keys")
    flat: dict[str, Any] = {}
    for key, value in table.items():
        inner = {f"{key}.{rest}": one for rest, one in _flat(key, value).items()} if isinstance(value, dict) else None
        flat |= {key: value} if inner is None else inner
    return flat


def _check_axis(key: str, values: Any) -> None:
    if not isinstance(values, list) or not values:
        raise GridError(f"{key} in [grid] is a list of values, {key} = [1, 2] say: what has one value goes to [fixed]")
    if any(values.index(value) != place for place, value in enumerate(values)):
        raise GridError(f"{key} in [grid] has a value twice")
