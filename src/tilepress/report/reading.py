"""Files of records, checked before anything is made of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from .._bounded import MB, UnreadableError, read_bounded_text
from ..records import Record, RecordsError, from_json

LARGEST = 4 * MB  # bytes; as objects they take 17 times as many at most, since lists and objects are counted


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Of files, and of all .json files in folders; what is there twice counts once."""
    return list(dict.fromkeys(one for path in paths for file in _files(path) for one in _read(file)))


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.rglob("*.json"))
    if not files:
        raise RecordsError(f"{path} has no .json files: keep what a command prints with --json there")
    return files


def _read(path: Path) -> list[Record]:
    try:
        text = read_bounded_text(path, LARGEST)
    except UnreadableError as error:
        raise RecordsError(f"{path} cannot be read: {error}") from error
    return parse_records(text, path)


def parse_records(text: str, source: object) -> list[Record]:
    """Those of one text; a RecordsError names its `source`."""
    if len(text) > LARGEST:
        raise RecordsError(f"{source} cannot be read: it has more than {LARGEST / MB:g} MB")
    if text.count("{") + text.count("[") > len(text) / 32 + 1000:
        raise RecordsError(f"{source} cannot be read: it has more lists and objects than records could have")
    return from_json(text, source)
