"""What layers may become, and how many bytes there are for them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..formats import parse_weight
from .recipe import Recipe, read_recipe


@dataclass(frozen=True)
class Choice:
    """A format and a density that a layer may take."""

    format: str
    density: float = 1.0

    def __str__(self) -> str:
        return self.format if self.density == 1 else f"{self.format}@{100 * self.density:g}%"


@dataclass(frozen=True)
class Budget:
    """`bits` a weight, of the layers in blocks, or `megabytes` of all weights that the compressed model has; one of
    the two."""

    bits: float | None = None
    megabytes: float | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.bits, self.megabytes) if one is not None]
        if len(given) != 1:
            raise ValueError("a budget is --bits or --megabytes: give one of them")
        if not (math.isfinite(given[0]) and given[0] > 0):
            raise ValueError(f"a budget is a number above 0, not {given[0]:g}")

    def check(self, least: int, most: int, weights: int, rest: int = 0) -> None:
        """ValueError if that is too little for the smallest choices, `nbytes`, or more than the largest, of `most`
        bytes, can use: every layer would get the largest, and nothing be chosen."""
        self.nbytes(least, weights, rest)
        if self.bits is not None:
            given, size, unit = self.bits, _up(8 * most / weights), "bits a weight"
        else:
            assert self.megabytes is not None
            given, size, unit = self.megabytes, _up((most + rest) / 1e6), "MB"
        if given > float(size):
            raise ValueError(f"{given:g} {unit} are more than the largest choices take: give {size} or less")

    def nbytes(self, least: int, weights: int, rest: int = 0) -> int:
        """For layers of so many weights, which take `least` bytes at least; all else takes `rest`. ValueError if that
        is too much."""
        if self.bits is not None:
            nbytes = int(self.bits * weights / 8)
            wanted = f"{self.bits:g} bits a weight are too few: the smallest choices take {_up(8 * least / weights)}"
        else:
            assert self.megabytes is not None
            nbytes, size = int(self.megabytes * 1e6) - rest, _up((least + rest) / 1e6)
            wanted = f"{self.megabytes:g} MB are too few: with the smallest choices the model takes {size}"
        if nbytes < least:
            raise ValueError(wanted)
        return nbytes


def parse_choice(text: str, density: float = 1.0) -> Choice:
    """FORMAT[@DENSITY], `int4:g32`, `int8:row@0.5` or `int8:row@50%` say; `density` where none is named."""
    name, at, share = text.strip().partition("@")
    try:
        return Choice(str(parse_weight(name)), _density(share) if at else density)
    except ValueError as error:
        raise ValueError(f"--choose {text}: {error}") from error


def recipes_of(choices: Sequence[Choice], recipe: Recipe) -> dict[Choice, Recipe]:
    """Choice → the recipe that has it everywhere; ValueError where that cannot be followed or measured."""
    if len(set(choices)) < 2:
        raise ValueError("there is nothing to choose from: give --choose twice or more, each with another format")
    if recipe.weights.override:
        raise ValueError("the recipe has overrides, which allocate is to write: leave them out")
    if recipe.weights.grid == "source":
        raise ValueError('weights.grid "source" keeps the formats that weights came in: leave it out')
    if not recipe.calibration.sequences:
        raise ValueError("layers are measured on calibration text, and sequences is 0: set it to 8, say")
    return {choice: _everywhere(choice, recipe) for choice in choices}


def _everywhere(choice: Choice, recipe: Recipe) -> Recipe:
    stated = recipe.model_dump(mode="json")
    weights = {**stated["weights"], "format": choice.format, "density": choice.density, "target": "layer"}
    try:
        whole = read_recipe({**stated, "weights": weights})
        whole.plan("")  # some methods refuse some formats
    except ValueError as error:
        raise ValueError(f"--choose {choice}: {str(error).removeprefix('the recipe: ')}") from error
    return whole


def _density(text: str) -> float:
    number = re.fullmatch(r"(\d*\.?\d+)(%?)", text)
    density = float(number[1]) / (100 if number[2] else 1) if number else math.nan
    if not 0 < density <= 1:
        raise ValueError(f"a density is written 0.5 or 50%, say, above 0 and up to 1, not {text!r}")
    return density


def _up(value: float) -> str:
    """To two digits after the point; so a budget of that much is enough."""
    return f"{math.ceil(100 * value) / 100:.2f}"
