"""Machines and accelerators from YAML: those that come with the package, by name, and a user's own files."""

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from .._bounded import UnreadableError, read_bounded_text
from .._files import write_text
from .._validation import problems
from .accelerator import Accelerator
from .machine import Machine, MachineError

_MACHINES, _ACCELERATORS = (Path(__file__).parent / folder for folder in ("machines", "accelerators"))
_Described = TypeVar("_Described", bound=BaseModel)
_LARGEST = 64_000  # bytes of a description, which has 2,000
UNSOURCED = ("like", "name", "title", "kv", "sources")  # no constants
_BRACKETS = 500  # of a description; brackets in brackets take time by their square


class _Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
    """Without aliases: a few lines of them stand for billions of fields."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not read: write the values out")
        return super().compose_node(parent, index)


def machine_names() -> list[str]:
    """Machines that come with the package."""
    return _names(_MACHINES)


def accelerator_names() -> list[str]:
    """Accelerators that come with the package."""
    return _names(_ACCELERATORS)


def read_machine(name: str | Path) -> Machine:
    """The machine called `name`, or the one that the YAML file of that path describes."""
    return _read(Machine, "machine", name, _MACHINES, [*machine_names(), "here"])


def read_accelerator(name: str | Path) -> Accelerator:
    """The accelerator called `name`, or the one that the YAML file of that path describes."""
    return _read(Accelerator, "accelerator", name, _ACCELERATORS, accelerator_names())


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _read(type: type[_Described], what: str, name: str | Path, folder: Path, known: Sequence[str]) -> _Described:
    path = folder / f"{name}.yaml"
    if str(name) not in _names(folder):
        path = Path(name)
        if path.suffix not in (".yaml", ".yml"):
            raise MachineError(f"no {what} {str(name)!r}{_hint(str(name), known)}")
    try:
        own = _mapping(path)
        described = type.model_validate(_whole(own, folder))
        _check_sources(path, own, folder)
        return described
    except ValidationError as error:
        raise MachineError(f"{path}: {problems(error, 'the machine')}") from error
    except (LookupError, AttributeError, TypeError, OverflowError) as error:  # PyYAML's, of `!!int ''`, `!!bool 1` …
        raise MachineError(f"{path} has a YAML tag whose value does not fit it: {error!r}") from error


def write_machine(path: Path, machine: Machine) -> None:
    """A file that `read_machine` takes; written beside and renamed."""
    fields = machine.model_dump(exclude_unset=True, exclude_none=True)
    write_text(path, yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))


def _mapping(path: Path) -> dict[str, Any]:
    try:
        fields = yaml.load(_checked_text(path), _Loader)
    except (OSError, UnreadableError) as error:
        raise MachineError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MachineError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(fields, dict):
        raise MachineError(f"{path} holds no mapping of fields; `tilepress roofsurface --help` says what a machine is")
    return fields


def _checked_text(path: Path) -> str:
    text = read_bounded_text(path, _LARGEST)
    if text.count("[") + text.count("{") > _BRACKETS:
        raise UnreadableError(f"it has more than {_BRACKETS} brackets, and no description needs so many")
    return text


def _whole(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With what `like: NAME` leaves to another machine of the package; sources are joined, all else replaced."""
    if "like" not in fields:
        return fields
    name, base = fields["like"], _base(fields, folder)
    if base is None:
        raise MachineError(f"like: there is no {name!r}; there are {', '.join(_names(folder))}")
    sources = fields.get("sources", {})
    if isinstance(sources, dict):
        sources = {**base["sources"], **sources}
    own = {key: value for key, value in fields.items() if key != "like"}
    return {**base, **own, "sources": sources}


def _base(fields: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """The machine that a description is `like`, whole."""
    name = fields.get("like")
    return _whole(_mapping(folder / f"{name}.yaml"), folder) if name in _names(folder) else None


def _check_sources(path: Path, fields: dict[str, Any], folder: Path) -> None:
    """A constant that differs from that of the machine which the description is `like` needs a source of its own."""
    base = _base(fields, folder)
    if base is None:
        return
    before, sources = dict(_leaves(base)), fields.get("sources", {})
    for name, value in _leaves({key: one for key, one in fields.items() if key not in UNSOURCED}):
        is_own = any(name == known or name.startswith(known + ".") for known in sources)
        if value is not None and value != before.get(name) and not is_own:
            raise MachineError(
                f"{path}: {name} is not as in {fields['like']}, whose source does not hold for it: add it to sources"
            )


def _leaves(part: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names of constants, and their values."""
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    there = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known[:-1])} and {known[-1]},"
    return f"{there} or give a file that ends in .yaml"
