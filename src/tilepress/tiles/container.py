"""Packed matrices in a file: safetensors, with a header that says what they are and proves they are whole.

The header (see `sealed`) has for each matrix its format, shape, operand width, density, table of values (look-up
formats) and the SHA-256 of each array. A forged file passes all that, and then every array must still agree with every
other before native code gets to see one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .._safetensors import DamagedError
from ..formats import Table, parse_weight
from ..formats.tables import NF4
from . import sealed
from .matrix import PackedMatrix
from .native import own_copy
from .sealed import open_sealed, read_sealed, sha256, write_sealed

VERSION = 2


@dataclass(frozen=True)
class Entry:
    """What the header says of one matrix."""

    format: str
    shape: tuple[int, int]
    operand_bits: int
    density: float
    table: tuple[float, ...]
    sha256: dict[str, str]


def save(path: str | Path, matrices: Mapping[str, PackedMatrix]) -> None:
    """Write the matrices to `path`: to a file beside it first, which then takes its place."""
    if not matrices:
        raise ValueError("there is no matrix to save")
    arrays = {f"{name}.{part}": array for name, m in matrices.items() for part, array in m.streams.items()}
    header = {
        "version": VERSION,
        "matrices": {name: describe(matrix) for name, matrix in matrices.items()},
    }
    write_sealed(path, arrays, header)


def load(path: str | Path, names: Iterable[str] | None = None) -> dict[str, PackedMatrix]:
    """The matrices in the file, or those of `names`; DamagedError unless every byte of them is as it was written."""
    entries = read_header(path)
    selected = list(entries if names is None else names)
    for name in selected:
        if name not in entries:
            raise ValueError(f"{path} holds no matrix {name!r}; it holds {', '.join(entries)}")
    with open_sealed(path) as file:
        _check_arrays(path, set(file.keys()), entries)
        return {name: _read_matrix(path, file, name, entries[name]) for name in selected}


def _read_matrix(path: str | Path, file: Any, name: str, entry: Entry) -> PackedMatrix:
    return restore(f"{path}: {name}", entry, {part: file.get_tensor(f"{name}.{part}") for part in entry.sha256})


def read_header(path: str | Path) -> dict[str, Entry]:
    """What the file says it holds, without reading the arrays."""
    header = read_sealed(path, VERSION)
    try:
        return {name: read_entry(description) for name, description in header["matrices"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"{path}: the header cannot be understood: {error!r}") from error


def check_version(where: str | Path, header: Mapping[str, Any]) -> None:
    """DamagedError, which names the place `where`, unless the header's version is the one that is read here."""
    sealed.check_version(where, header, VERSION)


def describe(matrix: PackedMatrix) -> dict[str, Any]:
    """What, beside its arrays, makes a matrix, with their checksums; fit for JSON."""
    element = matrix.format.element
    return {
        "format": str(matrix.format),
        "shape": [matrix.rows, matrix.cols],
        "operand_bits": matrix.operand_bits,
        "density": matrix.density,
        "table": list(element.values) if isinstance(element, Table) and element.name != NF4.name else [],
        "sha256": {name: sha256(array) for name, array in matrix.streams.items()},
    }


def read_entry(description: dict[str, Any]) -> Entry:
    """A description read back; KeyError, TypeError, ValueError or AttributeError where it is none."""
    rows, cols = description["shape"]
    numbers = (rows, cols, description["operand_bits"])
    if not all(type(number) is int for number in numbers):
        raise TypeError(f"shape and operand_bits must be integers, not {numbers}")
    return Entry(
        str(description["format"]),
        (rows, cols),
        description["operand_bits"],
        float(description["density"]),
        tuple(map(float, description["table"])),
        {str(name): str(digest) for name, digest in description["sha256"].items()},
    )


def restore(where: str, entry: Entry, arrays: Mapping[str, Tensor], *, is_checked: bool = False) -> PackedMatrix:
    """The matrix that `entry` describes, of private copies of its arrays: what is checked cannot change any more.

    DamagedError, which names the place `where`, if they are not what was once described. Checksums are left out where
    the file that the arrays come from `is_checked`; that the arrays fit together is checked in any case.
    """
    own: dict[str, Any] = {part: own_copy(arrays[part]) for part in entry.sha256}
    for part, digest in entry.sha256.items():
        if not is_checked and sha256(own[part]) != digest:
            raise DamagedError(f"{where}.{part} is damaged: its checksum does not match")
    try:
        format = parse_weight(entry.format, table=entry.table)
        matrix = PackedMatrix(format, *entry.shape, entry.operand_bits, **own)
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedError(f"{where} is damaged: {error}") from error
    if matrix.density != entry.density:
        raise DamagedError(f"{where} is damaged: density {matrix.density}, not {entry.density} as stated")
    return matrix


def _check_arrays(path: str | Path, names: set[str], entries: dict[str, Entry]) -> None:
    expected = {f"{name}.{part}" for name, entry in entries.items() for part in entry.sha256}
    if names != expected:
        odd = sorted(names ^ expected)[0]
        raise DamagedError(f"{path}: the header and the arrays disagree about {odd}")
