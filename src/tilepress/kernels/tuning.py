"""Row limits measured on this machine: up to how many rows each variant of a linear layer is preferred.

`tilepress doctor --tune` measures and writes them, into `tuning` of the cache folder, one file for each processor,
instruction set, number of threads and version. The first linear layer of a process reads them. Without a file, or with
TILEPRESS_TUNING=off, the built-in limits are in force (native/dispatch/row_limits.cc). The same folder has the
placements of placement.py.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .. import _native
from .._bounded import MB, read_bounded_text
from .._files import cache_folder, write_text
from ..records import cpu_model

Limit = tuple[str, str, str, int]  # operation, class of weights, activations, rows

VARIABLE = "TILEPRESS_TUNING"
BUILT_IN = "built-in"
REMOVAL = "tilepress doctor --reset-tuning"

_files: dict[str, Path] = {}  # instruction set → the file whose limits are in force


@cache
def load() -> None:
    """Put the limits of this machine's files in force, once in a process. A file that is not one is ignored, with a
    warning."""
    if os.environ.get(VARIABLE) == "off" or not tuning_folder().is_dir():
        return
    threads = torch.get_num_threads()
    for isa in _native.supported_isas():
        path = tuning_file(isa, threads)
        if path.exists():
            _load(path, isa, threads)


def source() -> str:
    """Where the limits of the instruction set in force come from: a file, or BUILT_IN."""
    load()
    return str(_files.get(_native.active_isa(), BUILT_IN))


def save(limits: Iterable[Limit], isa: str, threads: int) -> Path:
    """Write the limits and put them in force; ValueError, with nothing written, where one is out of range."""
    table, path = list(limits), tuning_file(isa, threads)
    _native.set_row_limits(isa, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(_key(isa, threads) | {"limits": table}, indent=1) + "\n")
    _files[isa] = path
    return path


def reset() -> list[Path]:
    """Remove all tuning files, of placements too, also of other machines and versions; the built-in limits are in force
    again."""
    paths = sorted(tuning_folder().glob("*.json"))
    for path in paths:
        path.unlink(missing_ok=True)
    for isa in _native.supported_isas():
        _native.set_row_limits(isa, [])
    _files.clear()
    return paths


def tuning_file(isa: str, threads: int) -> Path:
    """Where limits of this machine are stored, whether or not they are."""
    digest = hashlib.sha256(json.dumps(_key(isa, threads)).encode()).hexdigest()
    return tuning_folder() / f"{isa}-{threads}-threads-{digest[:12]}.json"


def tuning_folder() -> Path:
    """Of everything that `doctor --tune` stores; it need not exist."""
    return cache_folder() / "tuning"


def _key(isa: str, threads: int) -> dict[str, Any]:
    return {"cpu": cpu_model(), "isa": isa, "threads": threads, "version": version("tilepress")}


def _load(path: Path, isa: str, threads: int) -> None:
    try:
        _native.set_row_limits(isa, _read(path, _key(isa, threads)))
        _files[isa] = path
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(
            f"{path} is ignored, built-in row limits are used ({reason}); remove it by: {REMOVAL}",
            RuntimeWarning,
            stacklevel=2,
        )


def _read(path: Path, key: dict[str, Any]) -> list[Limit]:
    table = json.loads(read_bounded_text(path, MB))
    if not isinstance(table, dict) or table.keys() != {*key, "limits"} or not isinstance(table["limits"], list):
        raise ValueError("it is no table of row limits")
    if any(table[name] != value for name, value in key.items()):
        raise ValueError("it is of another machine or version")
    return [_limit(entry) for entry in table["limits"]]


def _limit(entry: object) -> Limit:
    match entry:
        case [str(operation), str(weights), str(activations), int(rows)] if type(rows) is int:
            return operation, weights, activations, rows
    raise ValueError(f"{str(entry)[:80]} is no row limit")
