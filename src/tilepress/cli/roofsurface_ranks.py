"""What the Roof-Surface says of a decoder's speed, in one process and in ranks, one on each socket."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output import Recorder, print_table

if TYPE_CHECKING:
    from ..formats import WeightFormat
    from ..hardware import Machine
    from ..records import Label
    from ..roofsurface import Prediction, Step
    from ..simulate.layers import Transformer

    Predict = Callable[[Machine, WeightFormat, float], Prediction]


@dataclass(frozen=True)
class Way:
    """To run a model: `ranks` processes on `sockets` sockets."""

    sockets: int = 1
    ranks: int = 1

    def __str__(self) -> str:
        processes = f"{self.ranks} ranks" if self.ranks > 1 else "1 process"
        return f"{processes} on {self.sockets} {'socket' if self.sockets == 1 else 'sockets'}"


@dataclass(frozen=True)
class Decoding:
    """Of a model with `rows` sequences: a step in each of `ways`, for each prediction of one socket."""

    machine: "Machine"
    model: "Transformer"
    rows: int
    ways: "Sequence[Way]"
    steps: "Sequence[tuple[Prediction, Sequence[Step]]]"

    def record(self, recorder: Recorder) -> None:
        for one, steps in self.steps:
            for way, step in zip(self.ways, steps, strict=True):
                labels: dict[str, Label] = {"model": self.model.name, "sockets": way.sockets, "ranks": way.ranks}
                labels |= {"format": str(one.format), "density": one.density, "batch": self.rows}
                recorder.add("decode", step.rate, "token/s", **labels)
                recorder.add("exchange_share", step.exchange_share, "", **labels)

    def print(self) -> None:
        ranked = len(self.ways) > 1
        columns = ["weights", "density", *map(str, self.ways), *(["× 1 socket", "between ranks"] if ranked else [])]
        rows = [
            [str(one.format), f"{100 * one.density:g} %", *(f"{step.rate:.1f}" for step in steps), *_ratios(steps)]
            for one, steps in self.steps
        ]
        title = f"{self.model.name} on {self.machine.title}, modelled, not measured: tokens/s at most"
        print_table(title, columns, rows, words=2)


def decode(
    machine: "Machine", model: str, ranks: int, rows: int, predictions: "Sequence[Prediction]", predict: "Predict"
) -> Decoding:
    """One process on one socket; with several ranks also one process on as many sockets, and the ranks. `predict`: as
    `predictions` were made. ValueError if the machine has not as many sockets."""
    from ..roofsurface import check_ranks, one_process, step
    from ..simulate.layers import find_transformer
    from ..simulate.ranks import cut

    check_ranks(machine, ranks)
    transformer = find_transformer(model)
    ways = [Way(), Way(ranks), Way(ranks, ranks)] if ranks > 1 else [Way()]

    def run(way: Way, one: "Prediction") -> "Step":
        if way.sockets > way.ranks:
            one = predict(one_process(machine, way.sockets), one.format, one.density)
        return step(machine, one, cut(transformer, way.ranks), rows)

    return Decoding(machine, transformer, rows, ways, [(one, [run(way, one) for way in ways]) for one in predictions])


def _ratios(steps: "Sequence[Step]") -> list[str]:
    if len(steps) == 1:
        return []
    return [f"{steps[-1].rate / steps[0].rate:.2f}", f"{100 * steps[-1].exchange_share:.1f} %"]
