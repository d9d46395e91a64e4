"""Files that prove they are whole: safetensors with a header of ours.

The metadata entry "tilepress" is JSON: a version, a digest, and what the writer has to say. The digest is the SHA-256
of everything in the file before the arrays, taken with zeros in the digest's own place; with checksums of the arrays in
the header no byte of the file can change unseen. That guards against damage, not against forgery. So the header is
parsed only if its size fits the file's, and its digest is right.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .._files import replacing
from .._safetensors import DamagedError, read_raw_header

_KEY = "tilepress"
_NO_DIGEST = "0" * 64


def write_sealed(path: str | Path, arrays: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write arrays and header, which has a `version`, to a file beside `path`, which then takes its place."""
    with replacing(path) as made:
        save_file(dict(arrays), made, {_KEY: json.dumps({"digest": _NO_DIGEST, **header})})
        _seal(made)


def read_sealed(path: str | Path, version: int) -> dict[str, Any]:
    """The file's header; DamagedError unless it is as it was written, in this version."""
    digest_is_right = _check_digest(path, read_raw_header(path))
    with open_sealed(path) as file:
        text = (file.metadata() or {}).get(_KEY)
    if text is None:
        raise DamagedError(f"{path} is a safetensors file, but not one of tilepress")
    header = _json_object(path, text)
    check_version(path, header, version)
    if not digest_is_right:
        raise DamagedError(f"{path}: the header is damaged: it has no checksum")
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


def _json_object(path: str | Path, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: the header is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path}: the header is not a JSON object")
    return value


def _check_digest(path: str | Path, raw: bytes) -> bool:
    """DamagedError if it is wrong, before anything is parsed; False if there is none, which may be another's file."""
    match = re.search(re.escape(_digest_field("")) + rb"([0-9a-f]{64})", raw)
    if match is None:
        return False
    blank = raw[: match.start(1)] + _NO_DIGEST.encode() + raw[match.end(1) :]
    if hashlib.sha256(blank).hexdigest() != match[1].decode():
        raise DamagedError(f"{path}: the header is damaged: its checksum does not match")
    return True


def _seal(path: Path) -> None:
    """Put the digest into a freshly written file."""
    raw = read_raw_header(path)
    at = raw.index(_digest_field(_NO_DIGEST)) + len(_digest_field(""))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(hashlib.sha256(raw).hexdigest().encode())


def _digest_field(digest: str) -> bytes:
    """As it stands in the file up to the end of the digest: JSON inside a JSON string, so quotes are escaped."""
    return f'\\"digest\\": \\"{digest}'.encode()


def sha256(array: Tensor) -> str:
    """Of the array's bytes."""
    return hashlib.sha256(array.view(-1).view(torch.uint8).numpy().data).hexdigest()
