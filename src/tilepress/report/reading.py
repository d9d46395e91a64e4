"""Files of records, checked before anything is made of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, get_args

from .._bounded import MB, UnreadableError, read_bounded_text
from ..records import Origin, Record, Reproduction, State

PLAIN = tuple(field.name for field in fields(Record))
COMPARED = tuple(field.name for field in fields(Reproduction))
LARGEST = 4 * MB  # bytes; as objects they take 17 times as many at most, since lists and objects are counted
TEXTS = ("name", "unit", "machine", "command", "item", "row", "column", "note")


class RecordsError(ValueError):
    """A file that holds no records; the message says where and why."""


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Of files, and of all .json files in folders; what is there twice counts once."""
    return list(dict.fromkeys(one for path in paths for file in _files(path) for one in _read(file)))


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.rglob("*.json"))
    if not found:
        raise RecordsError(f"{path} has no .json files: keep what a command prints with --json there")
    return found


def _read(path: Path) -> list[Record]:
    try:
        found = json.loads(_checked_text(path), parse_constant=_refuse)
    except UnreadableError as error:
        raise RecordsError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, list):
        raise RecordsError(f"{path} holds no array of records: give what a command prints with --json")
    return [_record(one, f"{path}, record {index}") for index, one in enumerate(found, 1)]


def _checked_text(path: Path) -> str:
    text = read_bounded_text(path, LARGEST)
    if text.count("{") + text.count("[") > len(text) / 32 + 1000:
        raise UnreadableError("it has more lists and objects than records could have")
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _record(found: Any, where: str) -> Record:
    if not isinstance(found, dict):
        raise RecordsError(f"{where}: is no object with {', '.join(PLAIN)}")
    compared = "item" in found
    known = COMPARED if compared else PLAIN
    if missing := [name for name in known if name not in found and name != "note"]:
        raise RecordsError(f"{where}: lacks {', '.join(missing)}")
    if unknown := [name for name in found if name not in known]:
        raise RecordsError(f"{where}: has {unknown[0]!r}, which no record has")
    for name, value in found.items():
        if wrong := _wrong(name, value):
            raise RecordsError(f"{where}: {name} is {wrong}, not {str(value)[:40]!r}")
    return Reproduction(**found) if compared else Record(**found)


def _wrong(name: str, value: Any) -> str | None:
    """What the field should be, where it is not that."""
    if name in TEXTS:
        return None if isinstance(value, str) else "a text"
    if name == "origin":
        return None if value in get_args(Origin) else f"one of {', '.join(get_args(Origin))}"
    if name == "state":
        return None if value in (None, *get_args(State)) else f"null or one of {', '.join(get_args(State))}"
    if name == "deviation":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return None if value is None or number else "a number or null"
    return None if isinstance(value, str | int | float | None) else "a text, a number, a truth or null"
