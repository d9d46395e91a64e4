"""Kinds of studies: what a point of each is, and by which figures its points are compared.

The module of a study has a class `Point`, a `StudyPoint` that gives the figures of one. Records have a label `study`
and one for each setting, with `_` in the place of dots.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from json import dumps
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from .. import __version__
from .._validation import problems
from ..cluster.batch import Settings
from ..records import Label, Origin, Record, Value, machine


@dataclass(frozen=True)
class Figure:
    metric: str
    value: Value
    unit: str
    origin: Origin
    labels: Mapping[str, Label] = field(default_factory=dict)


class Part(BaseModel):
    """A table of a point's settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StudyPoint(Part):
    """The settings of one point; what is impossible is refused when it is made."""

    def figures(self) -> Iterator[Figure]:
        raise NotImplementedError


@dataclass(frozen=True)
class Study:
    """`module`: of this package. `batch`: points that go to a worker at once, at most. The Pareto front is of the
    metrics `cost` and `loss`; points that differ in one of the labels `subject` are not compared. `shares_cpu`: whether
    one point leaves most CPUs idle."""

    name: str
    module: str
    batch: int
    cost: str
    loss: str
    subject: tuple[str, ...]
    shares_cpu: bool

    def check(self, settings: Settings) -> None:
        """ValueError where there is no such point."""
        self.point(settings)

    def point(self, settings: Settings) -> StudyPoint:
        kind: type[StudyPoint] = import_module(f".{self.module}", __package__).Point
        try:
            return kind.model_validate(_nested(settings))
        except ValidationError as error:
            raise ValueError(problems(error, "a point")) from error


_KERNEL = ("machine", "weights", "density", "batch", "parameters")
_TASK = ("model", "stage", "tokens", "batch", "weights", "bandwidth")
_STUDIES = (
    Study("compress", "compressed", 1, "size", "perplexity", ("model", "text", "eval_window", "eval_windows"), False),
    Study("simulate deca", "engines", 50, "area", "time", (*_KERNEL, "cores", "bandwidth", "latency", "dram"), True),
    Study("simulate compare", "arrays", 10, "energy", "time", _TASK, True),
)
STUDIES = {study.name: study for study in _STUDIES}
RUN = f"{__name__}:run"  # what batches call


def run(settings: Settings, command: str) -> list[Record]:
    """The records of one point."""
    labels = {key.replace(".", "_"): _label(value) for key, value in settings.items()}
    labels = {"study": labels.pop("kind"), **labels}
    return [
        Record(
            one.metric,
            {**labels, **one.labels},
            one.value,
            one.unit,
            one.origin,
            machine(),
            command,
            version=__version__,
        )
        for one in STUDIES[settings["kind"]].point(settings).figures()
    ]


def _nested(settings: Settings) -> dict[str, Any]:
    """Tables in the place of dots."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *tables, last = key.split(".")
        table = nested
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ValueError(f"{key}: {name} is a table, not {table!r}")
        if last in table:
            raise ValueError(f"{key} is there twice")
        table[last] = value
    nested.pop("kind")
    return nested


def _label(value: Any) -> Label:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if is_plain else dumps(value)
