"""Records of the points that are finished: a file a batch, written beside and renamed, in a folder of the sweep's own.

A record says by its label `point` which point it is of, so a file is as `--json` prints records, and a sweep with more
points takes what is there from any earlier one.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from .._bounded import UnreadableError, read_bounded_text
from .._files import write_text
from ..records import Record, RecordsError, from_json, to_json

POINT = "point"  # the label
LARGEST = 256_000_000  # bytes of a batch's file
LOCK = ".lock"


class SweepError(RuntimeError):
    """Why a folder cannot be swept into."""


class Finished:
    """Point → its records, of what lies in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, list[Record]] = {}
        for path in sorted(folder.glob(f"{'[0-9a-f]' * 16}.json")):
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            records = from_json(read_bounded_text(path, LARGEST), path)
        except (RecordsError, UnreadableError) as error:
            raise SweepError(f"{path} is no file of a sweep: move it away ({error})") from error
        for record in records:
            self.records.setdefault(str(record.labels.get(POINT)), []).append(record)

    def keep(self, name: str, results: Mapping[str, Sequence[Record]]) -> None:
        """The records of some points, in a file of that name."""
        labelled = {
            point: [replace(one, labels={**one.labels, POINT: point}) for one in records]
            for point, records in results.items()
        }
        text = to_json([one for records in labelled.values() for one in records])
        write_text(self.folder / f"{name}.json", text + "\n")
        self.records.update(labelled)


@contextmanager
def finished_in(folder: Path) -> Iterator[Finished]:
    """What is finished there; the folder, which is made, is nobody else's meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SweepError(f"another sweep writes to {folder}: wait for it, or give another folder") from error
        yield Finished(folder)
    finally:
        os.close(lock)
