"""What stands before a GGUF file's numbers: its metadata, checked for their size, and its table of tensors.

gguf makes an object of each number of an array, and goes on past the end of the file for as long as an array is said to
be. So the lengths are added up here before it gets to see the file.
"""

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..._bounded import MB, UnreadableError, open_ordinary
from ..embedded import ModelUnavailableError

OBJECT = 300  # bytes that gguf takes for one entry of an array
SMALLEST_TENSOR = 24  # bytes that describe one
ALIGNMENT = 32  # of tensors, where a file does not say it
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type → bytes
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_MOST_DIMENSIONS = 4
_CUT = "it ends before its metadata does"


class Stated(NamedTuple):
    """One tensor of the table. `shape`: the last dimension is the one that lies together, as torch has it. `type`: its
    number in GGML. `offset`: in bytes, from the first tensor."""

    shape: tuple[int, ...]
    type: int
    offset: int


@dataclass(frozen=True)
class Header:
    """`start`: where the first tensor begins in the file."""

    architecture: str
    tensors: dict[str, Stated]
    start: int


def check_gguf_metadata(path: Path) -> None:
    """ModelUnavailableError where the file ends before its metadata, or that has more entries than it can need."""
    with _metadata(path) as metadata:
        metadata.check()


def read_header(path: Path) -> Header:
    """The file's table of tensors; ModelUnavailableError as above, or where two tensors have one name."""
    with _metadata(path) as metadata:
        metadata.check()
        return metadata.header()


def read_texts(path: Path, keys: Iterable[str]) -> dict[str, str]:
    """Those of the fields that the file has, and that are texts."""
    with _metadata(path) as metadata:
        metadata.check()
        texts = {key: metadata.at_key(key.encode(), _STRING) for key in keys}
        return {key: text for key, text in texts.items() if text is not None}


@contextmanager
def _metadata(path: Path) -> Iterator["_Metadata"]:
    try:
        with open_ordinary(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError(_CUT)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield _Metadata(data)
    except struct.error as error:
        raise not_whole(path, _CUT) from error
    except (UnreadableError, ValueError) as error:
        raise not_whole(path, error) from error


def not_whole(path: Path, reason: object) -> ModelUnavailableError:
    """The error of a file that is cut short or damaged."""
    return ModelUnavailableError(f"{path} is no whole GGUF file: {reason}; fetch it again")


class _Metadata:
    """Goes through what stands before the tensors: `check`, then `header`."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.entries, self.tensors = data, 4, 0, 0
        self.order = "<" if struct.unpack_from("<I", data, 4)[0] & 0xFFFF else ">"  # the version is a small number
        self.most = (64 * MB + 2 * len(data)) // OBJECT
        self.places: dict[bytes, tuple[int, int]] = {}  # key → type and place of its value

    def check(self) -> None:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin like one")
        _, self.tensors, fields = self._number("I"), self._number("Q"), self._number("Q")
        for _ in range(fields):
            self._count(1)
            key, type = self._string(), self._number("I")
            self.places[key] = type, self.at
            self._value(type)
        self._count(self.tensors)
        self._skip(self.tensors * SMALLEST_TENSOR)
        self.at -= self.tensors * SMALLEST_TENSOR

    def header(self) -> Header:
        """What `check` has come to."""
        tensors: dict[str, Stated] = {}
        for _ in range(self.tensors):
            name = self._string().decode("utf-8")
            if name in tensors:
                raise ValueError(f"it has two tensors called {name}")
            tensors[name] = self._tensor()
        architecture, alignment = (
            self.at_key(b"general.architecture", _STRING),
            self.at_key(b"general.alignment", _UINT32),
        )
        alignment = ALIGNMENT if alignment is None else alignment
        if architecture is None or alignment <= 0 or alignment & (alignment - 1):
            raise ValueError("its metadata does not say what it is")
        return Header(architecture, tensors, -(-self.at // alignment) * alignment)

    def _tensor(self) -> Stated:
        dimensions = self._number("I")
        if not 0 < dimensions <= _MOST_DIMENSIONS:
            raise ValueError(f"it has a tensor of {dimensions} dimensions")
        shape = [self._number("Q") for _ in range(dimensions)]
        return Stated(tuple(reversed(shape)), self._number("I"), self._number("Q"))

    def at_key(self, key: bytes, type: int) -> Any:
        """The value of a field; None if there is none of that type."""
        found, place = self.places.get(key, (None, 0))
        if found != type:
            return None
        here, self.at = self.at, place
        value = self._string().decode("utf-8") if type == _STRING else self._number("I")
        self.at = here
        return value

    def _value(self, type: int) -> None:
        if type == _ARRAY:
            inner, length = self._number("I"), self._number("Q")
            self._count(length)
            self._array(inner, length)
        elif type == _STRING:
            self._string()
        else:
            self._skip(self._size(type))

    def _array(self, type: int, length: int) -> None:
        if type == _STRING:
            for _ in range(length):
                self._skip(self._number("Q"))
        else:
            self._skip(length * self._size(type))

    def _size(self, type: int) -> int:
        if type not in _SCALARS:
            raise ValueError(f"it has values of type {type}, which are not read")
        return _SCALARS[type]

    def _count(self, entries: int) -> None:
        self.entries += entries
        if self.entries > self.most:
            raise ValueError(f"its metadata has more than {self.most} entries, too many for a file of its size")

    def _number(self, type: str) -> int:
        number: int = struct.unpack_from(self.order + type, self.data, self.at)[0]
        self.at += struct.calcsize("<" + type)
        return number

    def _string(self) -> bytes:
        length = self._number("Q")
        self._skip(length)
        return self.data[self.at - length : self.at]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise ValueError(_CUT)
