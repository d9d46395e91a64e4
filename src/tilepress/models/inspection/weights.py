"""The arrays of a folder's safetensors files."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from ..._bounded import UnreadableError, json_limit, read_bounded_text
from ..._safetensors import INDEX, SINGLE, DamagedError, Stored, read_arrays


class Placed(NamedTuple):
    """An array, and the file that it is in."""

    path: Path
    stored: Stored


def weight_files(folder: Path) -> list[Path]:
    """As transformers chooses them: one file, or those of the index."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise DamagedError(f"{folder} holds neither {SINGLE} nor {INDEX}, so its weights are not looked at")
    names = read_json(folder / INDEX, folder).get("weight_map")
    files = sorted({str(name) for name in names.values()}) if isinstance(names, dict) else []
    if not files or any(Path(name).name != name or not (folder / name).is_file() for name in files):
        raise DamagedError(f"{folder / INDEX} is no index of files in that folder: fetch or save the model again")
    return [folder / name for name in files]


def read_weights(folder: Path) -> dict[str, Placed]:
    """Name → array."""
    return {name: Placed(path, one) for path in weight_files(folder) for name, one in read_arrays(path).items()}


def read_json(path: Path, folder: Path) -> dict[str, Any]:
    """An object in a file of `folder`, whose weights it describes."""
    weights = sum(one.stat().st_size for one in folder.glob("*.safetensors"))
    try:
        value = json.loads(read_bounded_text(path, json_limit(weights)))
    except (UnreadableError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is no JSON object")
    return value
