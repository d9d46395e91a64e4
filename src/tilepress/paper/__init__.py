"""The papers: every value that they print, with its place, and the experiment that gives ours beside it."""

from .._extras import need_lab

need_lab(__name__)

from .comparison import STATES, run, worst
from .evidence import choices, evidence_of, fitted_constants
from .item import Item, NotPossible, Ours, Published, Track
from .keeping import Keeping, command_of
from .published import Paper, PublishedError, read_paper
from .registry import find, items
from .tasks import task_of

__all__ = [
    "STATES", "Item", "Keeping", "NotPossible", "Ours", "Paper", "Published", "PublishedError", "Track", "choices",
    "command_of", "evidence_of", "find", "fitted_constants", "items", "read_paper", "run", "task_of", "worst",
]  # fmt: skip
