"""Records of reproductions in a file, each item's as soon as it is finished."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from .._files import write_text
from ..records import Reproduction, from_json, to_json
from .item import Item


class Keeping:
    """Item → its records. Without a path they stay in memory alone; the file is written beside and renamed."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._saved = _read(path) if path is not None and path.exists() else {}

    def records(self, item: Item) -> list[Reproduction] | None:
        return self._saved.get(item.name)

    def is_finished(self, item: Item, command: str) -> bool:
        """Whether there are records that the very command gave."""
        records = self._saved.get(item.name)
        return bool(records) and {one.command for one in records or ()} == {command}

    def keep(self, item: Item, records: Sequence[Reproduction]) -> None:
        self._saved[item.name] = list(records)
        if self.path is not None:
            write_text(self.path, to_json([one for records in self._saved.values() for one in records]) + "\n")


def command_of(item: Item, texts: Mapping[str, str]) -> str:
    """What gives this item by itself, with those of `texts`, option → value, that it takes."""
    options = [part for name, value in texts.items() if name in item.options for part in ("--set", f"{name}={value}")]
    return shlex.join(["tilepress", "reproduce", item.name, *options])


def _read(path: Path) -> dict[str, list[Reproduction]]:
    by_item: dict[str, list[Reproduction]] = {}
    try:
        records = from_json(path.read_text("utf-8"), path)
    except ValueError as error:
        raise ValueError(f"{path} holds no reproductions; give another file to --records ({error})") from error
    for one in records:
        if not isinstance(one, Reproduction):
            raise ValueError(f"{path} holds no reproductions; give another file to --records")
        by_item.setdefault(one.item, []).append(one)
    return by_item
