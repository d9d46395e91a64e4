"""All items of all papers, and how a user names them."""

import difflib
from collections.abc import Sequence

from . import anda, deca, harmonia, sparamx
from .item import Item

PAPERS: tuple[Sequence[Item], ...] = (deca.ITEMS, anda.ITEMS, harmonia.ITEMS, sparamx.ITEMS)


def items() -> list[Item]:
    """All items, paper after paper."""
    return [item for paper in PAPERS for item in paper]


def find(names: Sequence[str]) -> list[Item]:
    """The items that `names` mean, each a paper, PAPER/ITEM, or all; in the papers' order and each once."""
    for name in names:
        if name not in _known():
            near = difflib.get_close_matches(name, _known(), n=1, cutoff=0.3)
            hint = f"did you mean {near[0]!r}?" if near else "`tilepress reproduce --list` shows them."
            raise ValueError(f"no item {name!r}; {hint}")
    return [item for item in items() if {item.name, item.paper, "all"} & set(names)]


def _known() -> list[str]:
    return ["all", *dict.fromkeys(item.paper for item in items()), *(item.name for item in items())]
