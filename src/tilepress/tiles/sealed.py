"""Files that prove they are whole: safetensors with a header of ours.

The metadata entry "tilepress" is JSON: a version, a digest, and what the writer has to say. The digest is the SHA-256
of everything in the file before the arrays, taken with zeros in the digest's own place; with checksums of the arrays in
the header no byte of the file can change unseen. That guards against damage, not against forgery.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import replacing
from .matrix import DamagedError

_KEY = "tilepress"
_NO_DIGEST = "0" * 64
_LONGEST_HEADER = 100_000_000


def write_sealed(path: str | Path, arrays: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write arrays and header, which has a `version`, to a file beside `path`, which then takes its place."""
    with replacing(path) as made:
        save_file(dict(arrays), made, {_KEY: json.dumps({"digest": _NO_DIGEST, **header})})
        _seal(made)


def read_sealed(path: str | Path, version: int) -> dict[str, Any]:
    """The file's header; DamagedError unless it is as it was written, in this version."""
    raw = _read_raw_header(path)
    with open_sealed(path) as file:
        text = (file.metadata() or {}).get(_KEY)
    if text is None:
        raise DamagedError(f"{path} is a safetensors file, but not one of tilepress")
    header = _json_object(path, text)
    check_version(path, header, version)
    _check_digest(path, raw, header.get("digest"))
    return header


def check_version(where: str | Path, header: Mapping[str, Any], version: int) -> None:
    """DamagedError, which names the place `where`, unless the header has this version."""
    if header.get("version") != version:
        raise DamagedError(
            f"{where} has version {header.get('version')!r}; this tilepress reads version {version}: "
            "use the tilepress that wrote it, or pack it again"
        )


def open_sealed(path: str | Path) -> Any:
    """The file, to read arrays from."""
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
    """Put the digest into a freshly written file."""
    raw = _read_raw_header(path)
    at = raw.index(_digest_field(_NO_DIGEST)) + len(_digest_field(""))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(hashlib.sha256(raw).hexdigest().encode())


def _blank(raw: bytes, digest: str) -> bytes | None:
    field = _digest_field(digest)
    return raw.replace(field, _digest_field(_NO_DIGEST), 1) if len(digest) == 64 and field in raw else None


def _digest_field(digest: str) -> bytes:
    """As it stands in the file up to the end of the digest: JSON inside a JSON string, so quotes are escaped."""
    return f'\\"digest\\": \\"{digest}'.encode()


def sha256(array: Tensor) -> str:
    """Of the array's bytes."""
    return hashlib.sha256(array.view(-1).view(torch.uint8).numpy().data).hexdigest()
