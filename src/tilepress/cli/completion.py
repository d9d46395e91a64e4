"""What shells complete in the place of values: names of formats, machines and models. Nothing here imports torch."""

from collections.abc import Iterable
from pathlib import Path

EMBEDDED = "smollm2-135m"


def weight_formats(incomplete: str) -> list[str]:
    from ..formats import weight_names

    return _beginning(incomplete, weight_names())


def machines(incomplete: str) -> list[str]:
    from ..hardware import machine_names

    return [*_beginning(incomplete, ["here", *machine_names()]), *_files(incomplete, ".yaml")]


def accelerators(incomplete: str) -> list[str]:
    from ..hardware import accelerator_names

    return [*_beginning(incomplete, accelerator_names()), *_files(incomplete, ".yaml")]


def transformers(incomplete: str) -> list[str]:
    """Models whose shapes are known, for `simulate array`; none without the lab extra."""
    from .._extras import has_lab

    if not has_lab():
        return []
    from ..simulate.layers import TRANSFORMERS

    return _beginning(incomplete, TRANSFORMERS)


def models(incomplete: str) -> list[str]:
    """The embedded one, folders on the way to a model, and GGUF files."""
    return [*_beginning(incomplete, [EMBEDDED]), *_folders(incomplete), *_files(incomplete, ".gguf")]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, ending: str) -> list[str]:
    return [str(path) for path in _paths(incomplete) if path.suffix == ending]


def _folders(incomplete: str) -> list[str]:
    return [f"{path}/" if not (path / "config.json").exists() else str(path) for path in _paths(incomplete, True)]


def _paths(incomplete: str, folders: bool = False) -> list[Path]:
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    try:
        found = sorted(path for path in folder.iterdir() if path.is_dir() == folders)
    except OSError:
        return []
    return [path for path in found if str(path).startswith(incomplete) and not path.name.startswith(".")]
