"""Items as tasks for workers."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster.batch import Batch, Settings
from ..records import Reproduction
from .comparison import run
from .item import Item
from .keeping import command_of
from .registry import find

REPRODUCE = f"{__name__}:reproduce"  # what batches call


def task_of(item: Item, texts: Mapping[str, str]) -> Batch:
    """`texts`: option → value, of which the item has those that it takes."""
    taken = {name: value for name, value in texts.items() if name in item.options}
    return Batch(REPRODUCE, [{"item": item.name, "options": taken}], command_of(item, texts))


def reproduce(settings: Settings, command: str) -> list[Reproduction]:
    [item] = find([settings["item"]])
    return run(item, _without_bar, item.read_options(settings["options"]), command)


def _without_bar(sequence: Sequence[Any], description: str) -> Sequence[Any]:
    return sequence
