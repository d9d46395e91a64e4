"""From a folder that Tilepress wrote to files of other tools."""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..._files import apply_umask, sync, workspace
from ..embedded import ModelUnavailableError
from ..loading import is_compressed
from .compressed_tensors import write_compressed_tensors
from .errors import ExportError
from .gguf_file import write_gguf
from .packed_folder import PackedFolder

TARGETS = ("gguf", "compressed-tensors")


@dataclass(frozen=True)
class Exported:
    """What was written to `path`. `notes`: what differs from the model that was exported."""

    path: Path
    layers: int
    source_bytes: int
    nbytes: int
    notes: list[str]


def export_folder(folder: str | Path, out: str | Path, to: str) -> Exported:
    """Write the compressed model in `folder` for other tools, to the bit: `to` "gguf" makes one file of `out`,
    "compressed-tensors" a folder. It appears when all of it is written. ExportError where the target has no place for
    the model."""
    folder, out = Path(folder), Path(out)
    if to not in TARGETS:
        raise ExportError(f"models are exported to {' or '.join(TARGETS)}, not to {to!r}")
    if not is_compressed(folder):
        raise ExportError(f"{folder} is not a folder that tilepress wrote: compress the model first")
    if out.exists() and not (out.is_dir() and not any(out.iterdir()) and to != "gguf"):
        raise ExportError(f"{out} exists: choose another place, or remove it")
    source = PackedFolder(folder)
    with workspace(out) as beside:
        made = beside / out.name
        notes = _write_file(source, made) if to == "gguf" else _write_folder(source, made)
        _publish(made, out)
    return Exported(out, len(source.layers), source.shards.nbytes(), _bytes(out), notes)


def _write_file(source: PackedFolder, made: Path) -> list[str]:
    if importlib.util.find_spec("gguf") is None:
        raise ModelUnavailableError("writing GGUF files needs the package gguf: pip install 'tilepress[gguf]'")
    return write_gguf(source, made)


def _write_folder(source: PackedFolder, made: Path) -> list[str]:
    made.mkdir()
    notes = write_compressed_tensors(source, made)
    for path in source.companions():
        shutil.copyfile(path, made / path.name)
    apply_umask(made)
    return notes


def _publish(made: Path, out: Path) -> None:
    for path in [made] if made.is_file() else [*made.iterdir(), made]:
        sync(path)
    os.replace(made, out)
    sync(out.parent)


def _bytes(out: Path) -> int:
    return out.stat().st_size if out.is_file() else sum(path.stat().st_size for path in out.glob("*.safetensors"))
