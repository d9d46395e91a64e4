"""Machines from YAML: those that come with the package, by name, and a user's own files."""

import difflib
import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from .machine import Machine, MachineError

_FOLDER = Path(__file__).parent / "machines"


def machine_names() -> list[str]:
    """Machines that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def read_machine(name: str | Path) -> Machine:
    """The machine called `name`, or the one that the YAML file of that path describes."""
    path = _FOLDER / f"{name}.yaml"
    if str(name) not in machine_names():
        path = Path(name)
        if path.suffix not in (".yaml", ".yml"):
            raise MachineError(f"no machine {str(name)!r}{_hint(str(name))}")
    try:
        return Machine.model_validate(_mapping(path))
    except ValidationError as error:
        raise MachineError(f"{path}: {'; '.join(_in_words(one) for one in error.errors())}") from error


def write_machine(path: Path, machine: Machine) -> None:
    """A file that `read_machine` takes; written beside and renamed."""
    beside = path.with_name(path.name + ".part")
    fields = machine.model_dump(exclude_unset=True, exclude_none=True)
    beside.write_text(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), "utf-8")
    os.replace(beside, path)


def _mapping(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MachineError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise MachineError(f"{path} holds no mapping of fields; `tilepress roofsurface --help` says what a machine is")
    return found


def _in_words(error: Any) -> str:
    field = ".".join(map(str, error["loc"])) or "the machine"
    if error["type"] == "extra_forbidden":
        return f"{field}: there is no such field"
    if error["type"] == "missing":
        return f"{field}: is missing"
    return f"{field}: {error['msg'].removeprefix('Value error, ')}"


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, machine_names(), n=1, cutoff=0.4)
    known = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(machine_names())} and here,"
    return f"{known} or give a file that ends in .yaml"
