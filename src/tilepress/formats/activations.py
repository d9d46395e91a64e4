"""Formats of activations: `fp` (as they are), `bf16` (may be rounded to it where that is faster), `int8` (one scale per
row), `bfp:gN:mN`, and Anda's.

Anda gives each of four types of tensors a mantissa of its own: `anda:7,7,6,5`, in the order of TENSOR_TYPES, is block
floating point of 7, 7, 6 and 5 bits in groups of 64; `anda:g32:…` has groups of 32. `anda:1%` is still to be found: the
mantissas that cost the fewest bit operations and at most 1 % of perplexity.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from .bfp_format import BFP, GROUPS, MAX_MANTISSA
from .names import FormatError, parse

TensorType = Literal["qkv", "o", "u", "d"]
TENSOR_TYPES: tuple[TensorType, ...] = get_args(TensorType)
Mantissas = tuple[int, int, int, int]

ANDA_GROUP = 64
Plain = Literal["fp", "bf16", "int8"]
PLAIN: tuple[Plain, ...] = get_args(Plain)


@dataclass(frozen=True)
class Anda:
    """Mantissas of the inputs of q, k and v projections (qkv), of the output projection (o), of the gate and up
    projections (u) and of the down projection (d)."""

    mantissas: Mantissas
    group: int = ANDA_GROUP

    def __post_init__(self) -> None:
        if len(self.mantissas) != len(TENSOR_TYPES):
            raise ValueError(f"anda has a mantissa for each of {_listing(TENSOR_TYPES)}, not {len(self.mantissas)}")
        _ = self.formats

    def __str__(self) -> str:
        return f"anda:{_group_part(self.group)}{','.join(map(str, self.mantissas))}"

    @property
    def formats(self) -> dict[TensorType, BFP]:
        return {kind: BFP(self.group, bits) for kind, bits in zip(TENSOR_TYPES, self.mantissas, strict=True)}


@dataclass(frozen=True)
class AndaSearch:
    """To be found; `tolerance` is the share of perplexity that it may cost, 0.01 for 1 %."""

    tolerance: float
    group: int = ANDA_GROUP

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"a tolerance is from 0% to below 100%, not {_percent(self.tolerance)}")
        BFP(self.group, 1)

    def __str__(self) -> str:
        return f"anda:{_group_part(self.group)}{_percent(self.tolerance)}"


ActivationFormat = Plain | BFP | Anda | AndaSearch


def parse_activations(name: str) -> ActivationFormat:
    """The format of activations called `name`, or a FormatError that says what there is."""
    text = name.strip().lower()
    for plain in PLAIN:
        if text == plain:
            return plain
    head, _, rest = text.partition(":")
    if head == "anda":
        return _parse_anda(name, rest)
    if head == "bfp":
        format = parse(text)
        assert isinstance(format, BFP)
        return format
    hint = "; activations that stay as they are are written fp" if text in ("float", "fp16", "fp32", "none") else ""
    raise FormatError(f"activations are {_listing(PLAIN)}, bfp:gN:mN, anda:7,7,6,5 or anda:1%, not {name!r}{hint}")


def parse_tolerance(text: str) -> float:
    """`1%` as 0.01."""
    number = text.strip().removesuffix("%")
    if not text.strip().endswith("%") or re.fullmatch(r"\d+(\.\d*)?|\.\d+", number) is None:
        raise FormatError(f"a tolerance is a percentage, 1% or 0.1% say, not {text!r}")
    return float(number) / 100


def _parse_anda(name: str, rest: str) -> Anda | AndaSearch:
    group, _, bits = rest.rpartition(":")
    size = group.removeprefix("g") if group else str(ANDA_GROUP)
    if (group and not group.startswith("g")) or not size.isdecimal() or int(size) not in GROUPS:
        raise FormatError(f"{name!r}: groups of Anda's are g{', g'.join(map(str, GROUPS))}, not {group!r}")
    try:
        if bits.endswith("%"):
            return AndaSearch(parse_tolerance(bits), int(size))
        return Anda(_mantissas(name, bits), int(size))
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"{name!r}: {error}") from error


def _mantissas(name: str, text: str) -> Mantissas:
    parts = text.split(",")
    if len(parts) != len(TENSOR_TYPES) or not all(part.strip().isdecimal() for part in parts):
        raise FormatError(
            f"{name!r}: Anda's mantissas are four numbers from 1 to {MAX_MANTISSA}, for {_listing(TENSOR_TYPES)}: "
            "write anda:7,7,6,5, say, or anda:1% to have them found"
        )
    qkv, o, u, d = map(int, parts)
    return qkv, o, u, d


def _group_part(group: int) -> str:
    return "" if group == ANDA_GROUP else f"g{group}:"


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _listing(names: tuple[str, ...]) -> str:
    return ", ".join(names)
