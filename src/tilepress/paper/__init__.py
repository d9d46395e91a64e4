"""The papers: every value that they print, with its place, and the experiment that gives ours beside it."""

from .._extras import need_lab

need_lab(__name__)

from .comparison import STATES, run, worst
from .item import Item, NotPossible, Ours, Published, Track
from .keeping import Keeping, command_of
from .published import Paper, PublishedError, read_paper
from .registry import find, items

__all__ = [
    "STATES", "Item", "Keeping", "NotPossible", "Ours", "Paper", "Published", "PublishedError", "Track", "command_of",
    "find", "items", "read_paper", "run", "worst",
]  # fmt: skip
