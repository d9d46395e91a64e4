"""Format names: `element[:gN|row[:scale]]`, the MX names, and `bfp:gN:mN`. `str(parse(name))` is canonical."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal

from .bfp_format import BFP, GROUPS, MAX_MANTISSA
from .element import Element
from .floats import FLOATS
from .integers import SIGNED, UNSIGNED
from .tables import NF4, Table, read_table
from .weight import GROUP_STEP, MX_NAMES, SCALE_TYPES, ScaleType, Scaling, WeightFormat, default_scale_type

ELEMENTS: dict[str, Element] = {element.name: element for element in (*FLOATS, *SIGNED, *UNSIGNED, NF4)}
ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "e5m2": "bf8",
    "e4m3fn": "e4m3",
    "mxfp8-e4m3": "mxfp8",
    "mxfp6-e2m3": "mxfp6",
    "mxfp4-e2m1": "mxfp4",
}
_MX = {name: format for format, name in MX_NAMES.items()}


class FormatError(ValueError):
    """A format name that says nothing; the message names the nearest one that does."""


def parse(name: str, table: Sequence[float] | None = None) -> WeightFormat | BFP:
    """The format called `name`, or a FormatError that names the nearest valid spelling.

    `table`: the values of a `lutN:…` format, whose name is then only a label; no file is read.
    """
    if not isinstance(name, str):
        raise TypeError(f"a format name is a string, not {type(name).__name__}")
    head, *options = name.strip().split(":")
    head = ALIASES.get(head.lower(), head.lower())
    if head == "bfp":
        return _parse_bfp(name, options)
    if head in _MX:
        if options:
            raise FormatError(f"{name!r}: {head} has its scale in its name; did you mean {head!r}?")
        return _MX[head]
    element, options = _element(name, head, options, table)
    return _weight_format(name, element, options)


def parse_weight(name: str | WeightFormat, table: Sequence[float] | None = None) -> WeightFormat:
    """Like `parse`, for weights only."""
    format = name if isinstance(name, WeightFormat | BFP) else parse(name, table)
    if isinstance(format, BFP):
        raise FormatError(f"{name} is a format of activations; weights take {_listing(weight_names())}")
    return format


def weight_names() -> list[str]:
    """One spelling of each family, scaled as it usually is: what tables and demonstrations run through."""
    floats = [element.name for element in FLOATS if element.bits >= 8]
    small = [f"{element.name}:g32" for element in FLOATS if element.bits < 8]
    signed = [f"{element.name}:g32" for element in SIGNED]
    unsigned = [f"{element.name}:g128" for element in UNSIGNED]
    return [*floats, *_MX, *small, *signed, "int8:row", *unsigned, "nf4:g64"]


def _element(name: str, head: str, options: list[str], table: Sequence[float] | None) -> tuple[Element, list[str]]:
    """The element that `head` names and the options left; a table's file name is taken from the options."""
    if head in ELEMENTS:
        return ELEMENTS[head], options
    bits = head.removeprefix("lut")
    if head.startswith("lut") and bits in list("12345678"):
        return _table(name, int(bits), options, table)
    raise FormatError(f"unknown format {name!r}{_did_you_mean(head, _heads(), options)}")


def _table(name: str, bits: int, options: list[str], values: Sequence[float] | None) -> tuple[Element, list[str]]:
    """`lut3:FILE[:gN[:scale]]`, where FILE may itself hold colons: options are taken off the end."""
    tail: list[str] = []
    if len(options) > 1 and options[-1].lower() in SCALE_TYPES:
        tail.insert(0, options.pop())
    if len(options) > 1 and _group_or_none(options[-1]) is not False:
        tail.insert(0, options.pop())
    path = ":".join(options)
    if not path:
        raise FormatError(f"{name!r} names no file of values; write lut{bits}:FILE or lut{bits}:FILE:g32")
    try:
        if values is None:
            return read_table(path, bits), tail
        return Table(f"lut{bits}:{path}", bits, tuple(values)), tail
    except ValueError as error:
        raise FormatError(str(error)) from error


def _weight_format(name: str, element: Element, options: list[str]) -> WeightFormat:
    if len(options) > 2:
        raise FormatError(f"{name!r} has parts to spare; did you mean {':'.join([element.name, *options[:2]])!r}?")
    try:
        return WeightFormat(element, _scaling(name, element, options) if options else None)
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"{name!r}: {error}") from error


def _scaling(name: str, element: Element, options: list[str]) -> Scaling:
    group = _group_or_none(options[0])
    if group is False:
        raise FormatError(f"{name!r}: a group is gN or row, not {options[0]!r}; did you mean '{element.name}:g32'?")
    if group is not None and (group < GROUP_STEP or group % GROUP_STEP):
        near = max(GROUP_STEP, round(group / GROUP_STEP) * GROUP_STEP)
        raise FormatError(
            f"{name!r}: a group is a multiple of {GROUP_STEP} inputs; "
            f"did you mean {':'.join([element.name, f'g{near}', *options[1:]])!r}?"
        )
    return Scaling(group, _scale_type(name, element, group, options))


def _scale_type(name: str, element: Element, group: int | None, options: list[str]) -> ScaleType:
    if len(options) == 1:
        return default_scale_type(element, group)
    for known in SCALE_TYPES:
        if options[1].lower() == known:
            return known
    near = difflib.get_close_matches(options[1].lower(), SCALE_TYPES, n=1, cutoff=0.0)[0]
    raise FormatError(
        f"{name!r}: a scale is {_listing(SCALE_TYPES)}; did you mean {f'{element.name}:{options[0]}:{near}'!r}?"
    )


def _group_or_none(text: str) -> int | Literal[False] | None:
    """The number in `gN`, None for `row`, False for anything else."""
    text = text.lower()
    if text == "row":
        return None
    digits = text.removeprefix("g")
    return int(digits) if text.startswith("g") and digits.isascii() and digits.isdigit() else False


def _parse_bfp(name: str, options: list[str]) -> BFP:
    """`bfp:gN:mN`."""
    numbers = {part[:1].lower(): part[1:] for part in options}
    if (
        len(options) != 2
        or set(numbers) != {"g", "m"}
        or not all(n.isascii() and n.isdigit() for n in numbers.values())
    ):
        raise FormatError(f"{name!r}: block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?")
    group, mantissa = int(numbers["g"]), int(numbers["m"])
    try:
        return BFP(group, mantissa)
    except ValueError as error:
        near = BFP(min(GROUPS, key=lambda g: abs(g - group)), min(max(mantissa, 1), MAX_MANTISSA))
        raise FormatError(f"{name!r}: {error}; did you mean {str(near)!r}?") from error


def _heads() -> list[str]:
    return [*ELEMENTS, *_MX, *ALIASES, *(f"lut{bits}" for bits in range(1, 9)), "bfp"]


def _did_you_mean(head: str, known: Iterable[str], options: list[str]) -> str:
    near = difflib.get_close_matches(head, list(known), n=1, cutoff=0.4)
    if not near:
        return f"; weights take {_listing(weight_names())}, lutN:FILE"
    return f"; did you mean {':'.join([near[0], *options])!r}?"


def _listing(names: Iterable[str]) -> str:
    return ", ".join(names)
