"""Sweeps: what points cost and lose, and those that no other point beats."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Record
from ..sweep import STUDIES, Study, front, places
from ..sweep.front import Place, Subject
from .blocks import Block, Plot, Section, Sources, Table, text, unit_text
from .families import label_text
from .plots import colour

MOST_POINTS = 2000  # of a plot, beside the front
MOST_ROWS = 500


def is_of_sweep(record: Record) -> bool:
    return record.labels.get("study") in STUDIES and "point" in record.labels


def sweep_section(records: Sequence[Record]) -> Section | None:
    swept = [one for one in records if is_of_sweep(one)]
    blocks = [block for study in STUDIES.values() for block in _blocks(study, swept)]
    about = "Points of a grid; filled ones are on the Pareto front of their subject: no other point beats them in both."
    return Section("sweeps", "Sweeps", about, blocks, open=2) if blocks else None


def _blocks(study: Study, records: Sequence[Record]) -> list[Block]:
    by_point: dict[str, list[Record]] = {}
    for record in records:
        if record.labels["study"] == study.name:
            by_point.setdefault(str(record.labels["point"]), []).append(record)
    by_subject = places(study, by_point)
    if not by_subject:
        return []
    fronts = {subject: front(some) for subject, some in by_subject.items()}
    shown = [one for point in by_point.values() for one in point]
    varied = _varied([place for some in by_subject.values() for place in some])
    return [_plot(study, by_subject, fronts, shown, varied), _table(study, fronts, by_point, varied)]


def _varied(some: Sequence[Place]) -> list[str]:
    """Labels that tell points apart."""
    names = dict.fromkeys(name for place in some for name in place.labels if name != "point")
    return [name for name in names if len({place.labels.get(name) for place in some}) > 1]


def _plot(
    study: Study,
    by_subject: Mapping[Subject, Sequence[Place]],
    fronts: Mapping[Subject, Sequence[Place]],
    records: Sequence[Record],
    varied: Sequence[str],
) -> Plot:
    count = sum(map(len, by_subject.values()))
    step = -(-count // MOST_POINTS)
    traces = []
    for index, (subject, some) in enumerate(by_subject.items()):
        best = {place.point for place in fronts[subject]}
        drawn = [place for at, place in enumerate(some) if place.point in best or at % step == 0]
        traces.append(_trace(_name(subject, varied), index, drawn, best, varied))
    units = {one.metric: unit_text(one.unit) for one in records}
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": f"{study.cost}, {units[study.cost]}".rstrip(", ")}},
        "yaxis": {"title": {"text": f"{study.loss}, {units[study.loss]}".rstrip(", ")}, "type": "log"},
        "showlegend": len(traces) > 1,
    }
    note = f"One of {step} points is drawn, and the whole front." if step > 1 else ""
    return Plot(f"{study.loss.capitalize()} by {study.cost}", traces, Sources.of(records), layout, note)


def _trace(name: str, index: int, drawn: Sequence[Place], best: set[str], varied: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [place.cost for place in drawn],
        "y": [place.loss for place in drawn],
        "tips": [_tip(place, varied) for place in drawn],
        "marker": {
            "size": 7,
            "color": colour(index),
            "symbol": ["circle" if place.point in best else "circle-open" for place in drawn],
        },
    }


def _name(subject: Subject, varied: Sequence[str]) -> str:
    """What tells a subject from the others."""
    return ", ".join(f"{name.replace('_', ' ')} {label_text(label)}" for name, label in subject if name in varied)


def _tip(place: Place, varied: Sequence[str]) -> str:
    settings = ", ".join(f"{name.replace('_', ' ')} {_label(place, name)}" for name in varied)
    return f"{settings}: {text(place.cost)}, {text(place.loss)}"


def _label(place: Place, name: str) -> str:
    return label_text(place.labels.get(name, ""))


def _table(
    study: Study,
    fronts: Mapping[Subject, Sequence[Place]],
    by_point: Mapping[str, Sequence[Record]],
    varied: Sequence[str],
) -> Table:
    best = [place for some in fronts.values() for place in some]
    shown = best[:MOST_ROWS]
    used = [[one for one in by_point[place.point] if not {"statistic", "part"} & one.labels.keys()] for place in shown]
    metrics = list(dict.fromkeys((one.metric, unit_text(one.unit)) for records in used for one in records))
    values = [{one.metric: one.value for one in records} for records in used]
    rows = [
        [*(_label(place, name) for name in varied), *(of_it.get(metric) for metric, _ in metrics)]
        for place, of_it in zip(shown, values, strict=True)
    ]
    columns = [
        *(name.replace("_", " ") for name in varied),
        *(f"{name.replace('_', ' ')}, {unit}".rstrip(", ") for name, unit in metrics),
    ]
    sources = Sources.of(one for records in used for one in records)
    note = f"The first {MOST_ROWS} of {len(best)}." if len(best) > MOST_ROWS else ""
    return Table(f"The Pareto front: {study.name}", columns, rows, sources, words=len(varied), note=note)
