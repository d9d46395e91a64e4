"""When a value matches what a paper prints: one policy for all papers, by what kind of quantity it is.

A table of `published.yaml` names the quantity where it is not that of its unit; nothing else decides. A saving and its
reciprocal are judged alike: 54 % saved and 2.17 times less are one statement, and each matches where the other does.
Whatever the quantity, a value matches that rounds to the digits that are printed.
"""

from typing import Literal, get_args

Quantity = Literal["ratio", "share", "saving", "quality", "exact"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)

RATIO = 0.10  # a time, a rate, an area, a power, a speed-up: at most so much more, or less by the same factor
SHARE = 5.0  # points, of a percentage of a whole: how busy a unit is, a part of an energy
QUALITY = 0.1  # points, of accuracy or of perplexity lost
WHOLE = 100.0  # per cent


def quantity_of(unit: str) -> Quantity:
    """What a value of this unit is unless its table says otherwise."""
    return "share" if unit == "%" else "ratio"


def matches(ours: float | str, theirs: float | str, quantity: Quantity) -> bool:
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    digit = last_digit(theirs)
    if abs(ours - theirs) <= digit / 2 or ours == theirs:
        return True
    if quantity == "exact":  # papers cut digits off as often as they round
        return abs(ours - theirs) < digit
    if quantity in ("share", "quality"):
        return abs(ours - theirs) <= (SHARE if quantity == "share" else QUALITY)
    if quantity == "saving":
        ours, theirs = WHOLE - ours, WHOLE - theirs
    return _is_near(ours, theirs)


def last_digit(printed: float) -> float:
    """The unit of the last digit: 0.01 of 2.86, 1 of 12."""
    return 10.0 ** -len(repr(printed).partition(".")[2]) if isinstance(printed, float) else 1.0


def _is_near(ours: float, theirs: float) -> bool:
    """As a ratio, whichever of the two is above."""
    if ours <= 0 or theirs <= 0:
        return False
    return max(ours / theirs, theirs / ours) <= 1 + RATIO


def as_text(quantity: Quantity) -> str:
    """What counts as a match, for people."""
    return {
        "ratio": f"within {100 * RATIO:g} %, above or below by the same factor",
        "share": f"within {SHARE:g} points",
        "saving": f"what is left, within {100 * RATIO:g} %",
        "quality": f"within {QUALITY:g} points",
        "exact": "to the last digit printed",
    }[quantity]
