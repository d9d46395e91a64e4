"""Packed matrices in a file: safetensors, with a header that says what they are and proves they are whole.

The metadata entry "tilepress" is JSON: a version, a digest, and for each matrix its format, shape, operand width,
density, table of values (look-up formats) and the SHA-256 of each array. The digest is the SHA-256 of everything in
the file before the arrays, taken with zeros in the digest's own place, so no byte of the file can change unseen. It
guards against damage, not against forgery: a forged file passes it, and then every array must still agree with
every other before native code gets to see one.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..formats import Table, parse_weight
from ..formats.tables import NF4
from .matrix import DamagedError, PackedMatrix
from .native import own_copy

VERSION = 2
_KEY = "tilepress"
_NO_DIGEST = "0" * 64
_LONGEST_HEADER = 100_000_000


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
    path = Path(path)
    if not matrices:
        raise ValueError("there is no matrix to save")
    arrays = {f"{name}.{part}": array for name, m in matrices.items() for part, array in m.streams.items()}
    header = {
        "version": VERSION,
        "digest": _NO_DIGEST,
        "matrices": {name: describe(matrix) for name, matrix in matrices.items()},
    }
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        save_file(arrays, beside, {_KEY: json.dumps(header)})
        _seal(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _sync(path.parent)


def load(path: str | Path, names: Iterable[str] | None = None) -> dict[str, PackedMatrix]:
    """The matrices in the file, or those of `names`; DamagedError unless every byte of them is as it was written."""
    entries = read_header(path)
    wanted = list(entries if names is None else names)
    for name in wanted:
        if name not in entries:
            raise ValueError(f"{path} holds no matrix {name!r}; it holds {', '.join(entries)}")
    with _open(path) as file:
        _check_arrays(path, set(file.keys()), entries)
        return {name: _read_matrix(path, file, name, entries[name]) for name in wanted}


def _read_matrix(path: str | Path, file: Any, name: str, entry: Entry) -> PackedMatrix:
    return restore(f"{path}: {name}", entry, {part: file.get_tensor(f"{name}.{part}") for part in entry.sha256})


def read_header(path: str | Path) -> dict[str, Entry]:
    """What the file says it holds, without reading the arrays."""
    raw = _read_raw_header(path)
    with _open(path) as file:
        text = (file.metadata() or {}).get(_KEY)
    if text is None:
        raise DamagedError(f"{path} is a safetensors file, but not one of tilepress")
    header = _json_object(path, text)
    check_version(path, header)
    _check_digest(path, raw, header.get("digest"))
    try:
        return {name: read_entry(description) for name, description in header["matrices"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"{path}: the header cannot be understood: {error!r}") from error


def check_version(where: str | Path, header: Mapping[str, Any]) -> None:
    """DamagedError, which names the place `where`, unless the header's version is the one that is read here."""
    if header.get("version") != VERSION:
        raise DamagedError(
            f"{where} has version {header.get('version')!r}; this tilepress reads version {VERSION}: "
            "use the tilepress that wrote it, or pack it again"
        )


def describe(matrix: PackedMatrix) -> dict[str, Any]:
    """What, beside its arrays, makes a matrix, with their checksums; fit for JSON."""
    element = matrix.format.element
    return {
        "format": str(matrix.format),
        "shape": [matrix.rows, matrix.cols],
        "operand_bits": matrix.operand_bits,
        "density": matrix.density,
        "table": list(element.values) if isinstance(element, Table) and element is not NF4 else [],
        "sha256": {name: _sha256(array) for name, array in matrix.streams.items()},
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


def restore(where: str, entry: Entry, arrays: Mapping[str, Tensor]) -> PackedMatrix:
    """The matrix that `entry` describes, of private copies of its arrays: what is checked cannot change any more.

    DamagedError, which names the place `where`, if they are not what was once described.
    """
    own: dict[str, Any] = {part: own_copy(arrays[part]) for part in entry.sha256}
    for part, digest in entry.sha256.items():
        if _sha256(own[part]) != digest:
            raise DamagedError(f"{where}.{part} is damaged: its checksum does not match")
    try:
        format = parse_weight(entry.format, table=entry.table)
        matrix = PackedMatrix(format, *entry.shape, entry.operand_bits, **own)
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedError(f"{where} is damaged: {error}") from error
    if matrix.density != entry.density:
        raise DamagedError(f"{where} is damaged: density {matrix.density}, not {entry.density} as stated")
    return matrix


def _check_arrays(path: str | Path, found: set[str], entries: dict[str, Entry]) -> None:
    expected = {f"{name}.{part}" for name, entry in entries.items() for part in entry.sha256}
    if found != expected:
        odd = sorted(found ^ expected)[0]
        raise DamagedError(f"{path}: the header and the arrays disagree about {odd}")


def _open(path: str | Path) -> Any:
    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise DamagedError(f"{path} is not a whole safetensors file: {error}") from error


def _read_raw_header(path: str | Path) -> bytes:
    """Everything before the arrays: eight bytes of length, then that much JSON."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _LONGEST_HEADER + 1
        if length > _LONGEST_HEADER:
            raise DamagedError(f"{path} is not a safetensors file")
        return start + file.read(length)


def _json_object(path: str | Path, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path}: the header is not a JSON object")
    return value


def _check_digest(path: str | Path, raw: bytes, digest: object) -> None:
    blank = _blank(raw, str(digest))
    if blank is None or hashlib.sha256(blank).hexdigest() != digest:
        raise DamagedError(f"{path}: the header is damaged: its checksum does not match")


def _seal(path: Path) -> None:
    """Put the digest into a freshly written file, and the file onto the disk."""
    raw = _read_raw_header(path)
    at = raw.index(_digest_field(_NO_DIGEST)) + len(_digest_field(""))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(hashlib.sha256(raw).hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())


def _blank(raw: bytes, digest: str) -> bytes | None:
    field = _digest_field(digest)
    return raw.replace(field, _digest_field(_NO_DIGEST), 1) if len(digest) == 64 and field in raw else None


def _digest_field(digest: str) -> bytes:
    """As it stands in the file up to the end of the digest: JSON inside a JSON string, so quotes are escaped."""
    return f'\\"digest\\": \\"{digest}'.encode()


def _sha256(array: Tensor) -> str:
    return hashlib.sha256(array.view(-1).view(torch.uint8).numpy().data).hexdigest()


def _sync(folder: Path) -> None:
    """Make a rename last through a power cut, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
