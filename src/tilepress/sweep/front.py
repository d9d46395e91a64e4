"""Points by what they cost and what they lose, and the Pareto front: those that no other point beats in both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..records import Label, Record
from .studies import Study

Subject = tuple[tuple[str, Label], ...]


@dataclass(frozen=True)
class Place:
    """Where a point is; `labels`: those of its records."""

    point: str
    labels: Mapping[str, Label]
    cost: float
    loss: float


def places(study: Study, records: Mapping[str, Sequence[Record]]) -> dict[Subject, list[Place]]:
    """Subject → its points that have both figures, the cheapest first. `records`: by point."""
    by_subject: dict[Subject, list[Place]] = {}
    for point, figures in records.items():
        cost, loss = (_figure(figures, metric) for metric in (study.cost, study.loss))
        if cost and loss:
            subject = tuple((name, loss[0][name]) for name in study.subject if name in loss[0])
            by_subject.setdefault(subject, []).append(Place(point, loss[0], cost[1], loss[1]))
    return {subject: sorted(some, key=lambda one: (one.cost, one.loss)) for subject, some in by_subject.items()}


def front(ordered: Sequence[Place]) -> list[Place]:
    """Of places in the order of `places`; equal ones are all on it."""
    best: list[Place] = []
    for place in ordered:
        if not best or place.loss < best[-1].loss or (place.cost, place.loss) == (best[-1].cost, best[-1].loss):
            best.append(place)
    return best


def _figure(records: Sequence[Record], metric: str) -> tuple[Mapping[str, Label], float] | None:
    """Labels and value of the point's own, not of its spread or a part of it."""
    whole = (one for one in records if one.metric == metric and one.labels.keys().isdisjoint(("statistic", "part")))
    return next(((one.labels, one.value) for one in whole if isinstance(one.value, int | float)), None)
