"""Look-up tables: any list of up to 256 values under codes of 1 to 8 bits."""

import math
import struct
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .._bounded import UnreadableError, read_bounded_text
from .element import Element
from .nearest import nearest_rank

_LARGEST_FILE = 64_000  # bytes: 256 values, each with a comment

# The sixteen NormalFloat-4 values of QLoRA (Dettmers et al. 2023, appendix E): quantiles of a normal distribution
# scaled to [-1, 1], with an exact zero.
_NF4_VALUES = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@dataclass(frozen=True)
class Table(Element):
    """Code `c` stands for `values[c]`; codes past the end stand for the last value and are never produced.

    Values are float32, and -0 is 0. Ties between neighbours go to the even rank among the distinct values in
    ascending order; of equal values the lowest code is used. `name` is "lutN:LABEL", only a label (the file it came
    from, say): two tables are equal by bits and values.
    """

    name: str = field(compare=False)
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ValueError(f"a table has codes of 1 to 8 bits, not {self.bits}")
        if not 1 <= len(self.values) <= self.codes:
            raise ValueError(
                f"{self.name}: {self.bits}-bit codes reach 1 to {self.codes} values, not {len(self.values)}"
            )
        if not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"{self.name}: a table's values must be finite")
        object.__setattr__(self, "values", tuple(map(_as_float32, self.values)))
        if not self.name.startswith(f"lut{self.bits}:") and (self.name, self.values) != ("nf4", _NF4_VALUES):
            raise ValueError(f"a table of {self.bits}-bit codes is called lut{self.bits}:LABEL, not {self.name}")

    @property
    def max(self) -> float:
        return max(map(abs, self.values)) or 1.0

    @property
    def operand_bits(self) -> int:
        return 16

    @cached_property
    def ranked(self) -> tuple[tuple[float, int], ...]:
        """(value, code) ascending by value, each distinct value once with its lowest code."""
        lowest: dict[float, int] = {}
        for code, value in enumerate(self.values):
            lowest.setdefault(value, code)
        return tuple(sorted(lowest.items()))

    def encode(self, x: float) -> int:
        self._refuse_nan(x)
        return self.ranked[nearest_rank([value for value, _ in self.ranked], x)][1]

    def decode(self, code: int) -> float:
        self.check_code(code)
        return self.values[min(code, len(self.values) - 1)]


def read_table(path: str | Path, bits: int) -> Table:
    """A table from a text file: numbers separated by blanks, commas or lines; `#` starts a comment."""
    try:
        lines = read_bounded_text(path, _LARGEST_FILE).splitlines()
    except (OSError, UnreadableError) as error:
        raise ValueError(f"cannot read the table {path}: {error}") from error
    values = tuple(value for number, line in enumerate(lines, 1) for value in _numbers(path, number, line))
    return Table(f"lut{bits}:{path}", bits, values)


def _numbers(path: str | Path, number: int, line: str) -> list[float]:
    try:
        return [float(word) for word in line.partition("#")[0].replace(",", " ").split()]
    except ValueError:  # which quotes the word: the path may lead to any file, and errors end up in logs
        raise ValueError(f"the table {path} must hold only numbers: line {number} has something else") from None


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0]) + 0.0
    except OverflowError as error:
        raise ValueError("a table's values must fit float32") from error


NF4 = Table("nf4", 4, _NF4_VALUES)
