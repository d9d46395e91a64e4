"""Records of reproductions in a file, each item's as soon as it is finished."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..files import write_text
from ..records import Reproduction, from_json, to_json
from .item import Item


class Keeping:
    """Item → its records. Without a path they are kept in memory alone; the file is written beside and renamed."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._kept = _read(path) if path is not None and path.exists() else {}

    def records(self, item: Item) -> list[Reproduction] | None:
        return self._kept.get(item.name)

    def is_finished(self, item: Item, command: str) -> bool:
        """Whether there are records that the very command gave."""
        found = self._kept.get(item.name)
        return bool(found) and {one.command for one in found or ()} == {command}

    def keep(self, item: Item, records: Sequence[Reproduction]) -> None:
        self._kept[item.name] = list(records)
        if self.path is not None:
            write_text(self.path, to_json([one for kept in self._kept.values() for one in kept]) + "\n")


def command_of(item: Item, told: Mapping[str, str]) -> str:
    """What gives this item by itself, with those of the options `told` that it takes."""
    options = [part for name, value in told.items() if name in item.options for part in ("--set", f"{name}={value}")]
    return shlex.join(["tilepress", "reproduce", item.name, *options])


def _read(path: Path) -> dict[str, list[Reproduction]]:
    found: dict[str, list[Reproduction]] = {}
    try:
        records = from_json(path.read_text("utf-8"), path)
    except ValueError as error:
        raise ValueError(f"{path} holds no reproductions; give another file to --records ({error})") from error
    for one in records:
        if not isinstance(one, Reproduction):
            raise ValueError(f"{path} holds no reproductions; give another file to --records")
        found.setdefault(one.item, []).append(one)
    return found
