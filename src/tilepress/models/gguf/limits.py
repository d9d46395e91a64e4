"""How much a GGUF file's metadata takes once it is read.

gguf makes an object of each number of an array, and goes on past the end of the file for as long as an array is said to
be. So the lengths are added up here before it gets to see the file.
"""

import mmap
import struct
from pathlib import Path

from ..._bounded import MB, UnreadableError, open_ordinary
from ..embedded import ModelUnavailableError

OBJECT = 300  # bytes that gguf takes for one entry of an array
SMALLEST_TENSOR = 24  # bytes that describe one
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # type → bytes
_STRING, _ARRAY = 8, 9


def check_gguf_metadata(path: Path) -> None:
    """ModelUnavailableError where the file ends before its metadata, or that has more entries than it can need."""
    try:
        with open_ordinary(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Metadata(data).check()
    except (UnreadableError, ValueError, struct.error) as error:
        raise ModelUnavailableError(f"transformers cannot read {path}; is the file whole? ({error})") from error


class _Metadata:
    """Goes through what stands before the tensors."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.entries = data, 4, 0
        self.order = "<" if struct.unpack_from("<I", data, 4)[0] & 0xFFFF else ">"  # the version is a small number
        self.most = (64 * MB + 2 * len(data)) // OBJECT

    def check(self) -> None:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin like one")
        _, tensors, fields = self._number("I"), self._number("Q"), self._number("Q")
        for _ in range(fields):
            self._count(1)
            self._skip(self._number("Q"))
            self._value(self._number("I"))
        self._count(tensors)
        self._skip(tensors * SMALLEST_TENSOR)

    def _value(self, type: int) -> None:
        if type == _ARRAY:
            inner, length = self._number("I"), self._number("Q")
            self._count(length)
            self._array(inner, length)
        elif type == _STRING:
            self._skip(self._number("Q"))
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

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise ValueError("it ends before its metadata does")
