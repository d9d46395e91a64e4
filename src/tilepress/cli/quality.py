"""`tilepress simulate compare --quality`: measured losses of formats beside what machines take for them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .output import Recorder, figure_text, print_table

if TYPE_CHECKING:
    from ..records import Label, Record
    from ..simulate.arrays.compare import Measured, Point
    from ..simulate.arrays.workload import Task

HOW = "python benchmarks/activations.py makes such records"


@dataclass(frozen=True)
class Quality:
    """Formats of one `model`, judged on the same windows of `tokens` tokens."""

    model: str
    tokens: int
    measured: "Sequence[Measured]"


def read_quality(path: Path) -> Quality:
    """What was lost, from records of losses by window; their labels say of which model, formats and windows."""
    from ..report.reading import read_records

    try:
        records = [one for one in read_records([path]) if one.metric == "loss" and "window" in one.labels]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no losses by window: {error}") from error
    if not records:
        raise ValueError(f"{path} holds no losses by window; {HOW}")
    model, _, tokens = _only(path, records)
    return Quality(str(model), int(tokens), _excesses(path, records))


def check_model(quality: Quality, asked: str | None) -> str:
    """The model to simulate: that whose losses they are."""
    from ..simulate.layers import find_transformer

    if asked and find_transformer(asked) != find_transformer(quality.model):
        raise ValueError(f"the losses are of {quality.model}, and their costs must be, too: leave out --model {asked}")
    return quality.model


def record_points(recorder: Recorder, task: "Task", candidates: "Sequence[Point]") -> None:
    from ..simulate.arrays.compare import front

    best = front(candidates)
    of_task: dict[str, Label] = {"model": task.model.name, "stage": task.stage, "tokens": task.tokens}
    for one in candidates:
        labels = {"design": one.machine, "activations": one.activations, "kv": one.kv, **of_task}
        recorder.add("loss", one.loss, "%", "measured", **labels)
        recorder.add("loss", one.loss_error, "%", "measured", statistic="standard_error", **labels)
        recorder.add("time", 1e3 * one.seconds, "ms", **labels)
        recorder.add("energy", 1e3 * one.joules, "mJ", **labels)
        recorder.add("area", one.mm2, "mm2", **labels)
        recorder.add("on_front", one in best, **labels)


def print_points(task: "Task", candidates: "Sequence[Point]") -> None:
    from ..simulate.arrays.compare import ERRORS, front

    best = front(candidates)
    rows = [
        [
            one.machine,
            one.activations,
            one.kv,
            f"{one.loss:+.2f}",
            f"{one.loss_error:.2f}",
            figure_text(1e3 * one.seconds),
            figure_text(1e3 * one.joules),
            figure_text(one.mm2),
            "yes" if one in best else "",
        ]
        for one in sorted(candidates, key=lambda one: one.joules)
    ]
    columns = ["machine", "activations", "KV cache", "loss %", "± error", "ms", "mJ", "mm2", "on the front"]
    print_table(f"{task.model.name}, a prompt of {task.tokens} tokens, by energy", columns, rows, words=3)
    windows = len(candidates[0].excess)
    print(f"  Losses differ where windows, paired, do by more than {ERRORS} standard errors; there are {windows}.")


def _only(path: Path, records: "Iterable[Record]") -> "tuple[Label, Label, Label]":
    """Model, text and tokens of a window, which all records share."""
    found = {(one.labels.get("model", ""), one.labels.get("text", ""), one.labels.get("tokens", 0)) for one in records}
    if len(found) > 1:
        raise ValueError(f"{path} holds losses of several models, texts or lengths of windows, which do not compare")
    return found.pop()


def _excesses(path: Path, records: "Iterable[Record]") -> "list[Measured]":
    from ..simulate.arrays.compare import Measured

    losses: dict[tuple[str, str, str], dict[Label, float]] = defaultdict(dict)
    for one in records:
        if isinstance(one.value, float | int):
            losses[_formats(one.labels)][one.labels["window"]] = one.value
    plain = losses.get(("", "", ""))
    if not plain:
        raise ValueError(f"{path} lacks the losses without rounding, which others are compared with")
    if len(plain) < 2 or any(one.keys() != plain.keys() for one in losses.values()):
        raise ValueError(f"{path}: every format needs the same windows, two at least, for an error to be known")
    return [
        Measured(*formats, tuple(one[window] - plain[window] for window in plain)) for formats, one in losses.items()
    ]


def _formats(labels: "Mapping[str, Label]") -> tuple[str, str, str]:
    acts, kv, smoothing = (str(labels.get(name, "")) for name in ("activations", "kv", "smoothing"))
    return acts, kv, smoothing
