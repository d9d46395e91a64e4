"""One figure: what was measured, of what, on which machine and by which command. Reports are made of these."""

import json
import math
import os
import platform
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal, NoReturn, get_args

from .evidence import KINDS, Evidence

Origin = Literal["measured", "model", "simulated", "paper"]
Value = str | int | float | bool | None
Label = str | int | float
State = Literal["matches", "deviates", "not possible here"]
TEXTS = ("metric", "unit", "machine", "command", "version", "item", "row", "column", "note")
OPTIONAL = ("version", "note")


class RecordsError(ValueError):
    """A text that holds no records; the message says where and why."""


class Labels(Mapping[str, Label]):
    """What a figure is of, {"format": "int4:g32", "batch": 1} say: an immutable mapping that can be hashed."""

    __slots__ = ("_values",)

    def __init__(self, labels: Mapping[str, Label] | None = None, /, **more: Label) -> None:
        self._values = {**(labels or {}), **more}

    def __getitem__(self, name: str) -> Label:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Labels({self._values})"

    def __str__(self) -> str:
        """For people: "format int4:g32, batch 1"."""
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self._values.items())


@dataclass(frozen=True)
class Record:
    """A figure's `metric` names what was measured, as Prometheus does: lower case with underscores, no unit, "time" or
    "decode_speedup" say; `labels` name what it was measured of. What is known about the spread of a figure has the same
    metric and one label more, `statistic`: "standard_error", "standard_deviation", or "p99" for a percentile.

    `origin`: "measured" on this machine, by a "model", "simulated", or as a "paper" states it. `version`: of the
    Tilepress that gave the figure, "" where that was not recorded.
    """

    metric: str
    labels: Mapping[str, Label]
    value: Value
    unit: str
    origin: Origin
    machine: str
    command: str
    version: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", Labels(self.labels))


@dataclass(frozen=True)
class Reproduction(Record):
    """Our figure for a cell of a paper's `item`, "deca/table2" say, and the `paper`'s own (None where it prints none).
    The metric is "reproduction"; `item`, `row` and `column` stand in the place of labels.

    `deviation`: ours over theirs, less one; in a figure of unit % ours less theirs, in points. `state`: None where
    there is nothing to compare. `evidence`: what a match is worth, a prediction ("held-out") or less; None where the
    paper prints nothing. `note`: why it is not possible here, or what else must be known.
    """

    item: str
    row: str
    column: str
    paper: Value
    deviation: float | None
    state: State | None
    evidence: Evidence | None
    note: str = ""


@dataclass(frozen=True)
class Tally:
    """Of cells with one kind of evidence: how many match, deviate, and are not possible here."""

    matches: int = 0
    deviates: int = 0
    impossible: int = 0

    @property
    def compared(self) -> int:
        return self.matches + self.deviates

    def __str__(self) -> str:
        """Of those that were compared."""
        return f"{self.matches} of {self.compared} match"


def tally(records: Iterable[Reproduction]) -> dict[Evidence, Tally]:
    """What there is of each kind of evidence, held-out cells first, even where there are none."""
    counts = Counter((one.evidence, one.state) for one in records if one.evidence and one.state)
    tallies = {kind: Tally(*(counts[kind, state] for state in get_args(State))) for kind in KINDS}
    return {kind: one for kind, one in tallies.items() if kind == KINDS[0] or one != Tally()}


PLAIN = tuple(one.name for one in fields(Record))
COMPARED = tuple(one.name for one in fields(Reproduction))


def to_json(records: Iterable[Record]) -> str:
    """An array of records, one a line. JSON has no infinity and no NaN: such a value is null."""
    lines = ",\n".join("  " + json.dumps(_json_fields(record), ensure_ascii=False) for record in records)
    return f"[\n{lines}\n]" if lines else "[]"


def from_json(text: str, source: object) -> list[Record]:
    """What `to_json` made, checked; a RecordsError names the `source` of the text, and what is wrong with it."""
    try:
        entries = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{source} is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise RecordsError(f"{source} holds no array of records: give what a command prints with --json")
    return [_record(entry, f"{source}, record {index}") for index, entry in enumerate(entries, 1)]


def machine() -> str:
    """This machine in words, with the GPU if it was used."""
    cpu = f"{cpu_model()}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"
    gpu = _used_gpu()
    return f"{cpu}, {gpu}" if gpu else cpu


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """The processor's name as the system gives it, or the architecture's where it gives none."""
    return _lscpu_field("Model name") or platform.processor() or platform.machine()


def _json_fields(record: Record) -> dict[str, Any]:
    values = {one.name: _finite(getattr(record, one.name)) for one in fields(record)}
    if not record.version:
        del values["version"]
    return {**values, "labels": dict(record.labels)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _record(entry: Any, where: str) -> Record:
    if not isinstance(entry, dict):
        raise RecordsError(f"{where}: is no object with {', '.join(PLAIN)}")
    if "name" in entry and "metric" not in entry:
        raise RecordsError(f"{where}: is of an older version, which gave a name and no labels: measure it again")
    known = COMPARED if "item" in entry else PLAIN
    if missing := [name for name in known if name not in entry and name not in OPTIONAL]:
        raise RecordsError(f"{where}: lacks {', '.join(missing)}")
    if unknown := [name for name in entry if name not in known]:
        raise RecordsError(f"{where}: has {unknown[0]!r}, which no record has")
    for name, value in entry.items():
        if expected := _expected(name, value):
            raise RecordsError(f"{where}: {name} is {expected}, not {str(value)[:40]!r}")
    return Reproduction(**entry) if "item" in entry else Record(**entry)


def _expected(name: str, value: Any) -> str | None:
    """What the field should be, where it is not that."""
    if name in TEXTS:
        return None if isinstance(value, str) else "a text"
    if name == "labels":
        is_fine = isinstance(value, dict) and all(isinstance(one, str) or _is_number(one) for one in value.values())
        return None if is_fine else "an object of texts and numbers"
    if name == "origin":
        return None if value in get_args(Origin) else f"one of {', '.join(get_args(Origin))}"
    if name == "state":
        return None if value in (None, *get_args(State)) else f"null or one of {', '.join(get_args(State))}"
    if name == "evidence":
        return None if value in (None, *KINDS) else f"null or one of {', '.join(KINDS)}"
    if name == "deviation":
        return None if value is None or _is_number(value) else "a number or null"
    return None if isinstance(value, str | int | float | None) else "a text, a number, a truth or null"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _used_gpu() -> str | None:
    """That of a torch which somebody else imported and set to work on one."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_initialized() else None


def _lscpu_field(field: str) -> str | None:
    # /proc/cpuinfo has only numbers on ARM; lscpu knows the names behind them.
    if shutil.which("lscpu") is None:
        return None
    environment = {**os.environ, "LC_ALL": "C"}
    listing = subprocess.run(["lscpu"], capture_output=True, text=True, env=environment, check=False).stdout
    for line in listing.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == field and value.strip() not in ("", "-"):
            return value.strip()
    return None
