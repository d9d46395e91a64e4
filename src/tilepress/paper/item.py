"""An item of a paper: a table, a figure or a claim, with the values it prints and the experiment that gives ours.

An experiment is a function that yields `Ours`, cell after cell. Its first argument is a `Track`, to go through what
takes long with; its keyword-only arguments, typed and with defaults, are the options that `reproduce --set` takes, and
one whose default is a dataclass stands for its fields (`options.py` has those that many studies share):

    def figure_5(track: Track, *, subject: Subject = SUBJECT, windows: int = 4) -> Iterator[Ours]: ...

It imports what it needs inside, so that listing items is quick, and raises `NotPossible` where this machine cannot run
it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from inspect import Parameter, signature
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ..records import Origin, Value
from .tolerance import Quantity

Kind = Literal["exact", "simulated", "measured here", "same study, smaller model"]
Relation = Literal["=", "<", ">"]
ORIGINS: dict[Kind, Origin] = {
    "exact": "model",
    "simulated": "simulated",
    "measured here": "measured",
    "same study, smaller model": "measured",
}

# Goes through a sequence as `iter` does, under a description; a progress bar's `track` goes through it too.
Track = Callable[[Sequence[Any], str], Iterable[Any]]
Experiment = Callable[..., Iterable["Ours"]]


class NotPossible(Exception):
    """This machine cannot run the experiment; the message says why."""


@dataclass(frozen=True)
class Published:
    """A value that a paper prints, and where. `quantity` decides when ours matches (`tolerance`); a word does if it is
    the same. `relation`: the paper says less ("<") or more (">") than it. `follows`: what it can be worked out from,
    other cells of the paper or inputs of the model."""

    row: str
    column: str
    value: float | str
    unit: str
    place: str
    quantity: Quantity = "ratio"
    relation: Relation = "="
    follows: str = ""

    @property
    def cell(self) -> tuple[str, str]:
        return self.row, self.column


@dataclass(frozen=True)
class Ours:
    """Our value for a cell. None is one that cannot be had here, and `note` says why. `origin`: where it differs from
    that of the item's kind."""

    row: str
    column: str
    value: Value
    unit: str = ""
    note: str = ""
    origin: Origin | None = None


@dataclass(frozen=True)
class Item:
    """`notes`: what a reader must know: where the study differs, where the paper contradicts itself. `seconds`: about
    what it takes with its defaults in a run of all items, on two Neoverse-N1 cores with nothing else to do."""

    name: str
    title: str
    kind: Kind
    published: Sequence[Published]
    experiment: Experiment
    notes: Sequence[str] = ()
    seconds: float = 1

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_timed(self) -> bool:
        """Whether it measures how fast this machine is, and so must have it for itself."""
        return self.kind == "measured here"

    @property
    def options(self) -> dict[str, Any]:
        """Name → default of each option of the experiment."""
        options: dict[str, Any] = {}
        for name, default in self._arguments.items():
            options |= _fields(default) or {name: default}
        return options

    def read_options(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Those of `texts` that the experiment takes, in the types that it expects."""
        types = get_type_hints(self.experiment)
        for default in self._arguments.values():
            types |= get_type_hints(type(default)) if _fields(default) else {}
        return {name: self._value(name, types[name], text) for name, text in texts.items() if name in self.options}

    def run(self, track: Track, options: Mapping[str, Any]) -> Iterable[Ours]:
        """The experiment with some of its options given."""
        given: dict[str, Any] = {}
        for name, default in self._arguments.items():
            if fields := _fields(default):
                given[name] = type(default)(**{key: options.get(key, value) for key, value in fields.items()})
            elif name in options:
                given[name] = options[name]
        return self.experiment(track, **given)

    @property
    def _arguments(self) -> dict[str, Any]:
        parameters = signature(self.experiment).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is Parameter.KEYWORD_ONLY}

    def _value(self, name: str, type: Any, text: str) -> Any:
        try:
            return TypeAdapter(type).validate_python(text)
        except ValidationError as error:
            raise ValueError(f"{self.name}: {name}={text}: {error.errors()[0]['msg']}") from error


def _fields(default: Any) -> dict[str, Any]:
    """Those of a dataclass; none of anything else."""
    return asdict(default) if is_dataclass(default) and not isinstance(default, type) else {}
