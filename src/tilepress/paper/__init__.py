"""The papers: every value that they print, with its place, and the experiment that gives ours beside it."""

from .comparison import STATES, run, worst
from .item import Item, NotPossible, Ours, Published, Track, published_table
from .registry import find, items

__all__ = [
    "STATES", "Item", "NotPossible", "Ours", "Published", "Track", "find", "items", "published_table", "run", "worst",
]  # fmt: skip
