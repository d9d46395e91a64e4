"""What compression costs: perplexity, divergence, accuracy, and the size that it buys."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..records import Record
from .blocks import Plot, Section, Sources, Table, number
from .blocks import text as shown
from .catalogue import COMPRESSED, DEMO, QUALITY, SAMPLES
from .families import Figure, read, table

FIRST = ("perplexity", "kl_divergence", "same_top1", "accuracy", "accuracy_normalised")


def quality_section(records: Sequence[Record]) -> Section | None:
    judged, compressed = read(QUALITY, records), read(COMPRESSED, records)
    tables = [_judged(text, judged) for text in _subjects(judged)]
    tables += [table(COMPRESSED, compressed), table(DEMO, read(DEMO, records)), table(SAMPLES, read(SAMPLES, records))]
    blocks = [block for block in [_bought(judged, compressed), *tables] if block is not None]
    about = "Perplexity, divergence from the model as it comes, and tasks; ± is a standard error."
    return Section("quality", "Quality", about, blocks, open=2) if blocks else None


def _bought(judged: Sequence[Figure], compressed: Sequence[Figure]) -> Plot | None:
    """Perplexity over size, of models that both are known of."""
    sizes = {one.words["model"]: one.record for one in compressed if one.metric == "size"}
    known = [one for one in judged if one.metric == "perplexity" and one.words["model"] in sizes]
    points = [one for one in known if not one.is_error and number(one.record.value)]
    if len(points) < 2:
        return None
    traces = [_points(text, [one for one in points if one.words["on"] == text], sizes) for text in _subjects(points)]
    used = [record for one in points for record in (one.record, sizes[one.words["model"]])]
    known_sizes = [number(sizes[one.words["model"]].value) or 0.0 for one in points]
    least, most = min(known_sizes), max(known_sizes)
    room = 0.1 * (most - least) or 0.1 * most
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": "size of the files"}, "ticksuffix": "B", "range": [least - 3 * room, most + room]},
        "yaxis": {"title": {"text": "perplexity"}, "type": "log"},
        "showlegend": len(traces) > 1,
    }
    note = "Filled and named: the Pareto front. A pointer shows the names of all."
    return Plot("Perplexity by size", traces, Sources.of(used), layout, note)


def _judged(subject: str, figures: Sequence[Figure]) -> Table | None:
    """All models on one text or task, the figures that matter most first."""
    of_it = [one for one in figures if one.words["on"] == subject]
    here = [replace(one, words={name: word for name, word in one.words.items() if name != "on"}) for one in of_it]
    result = table(QUALITY, sorted(here, key=_place))
    return replace(result, title=f"Quality on {subject}") if result else None


def _place(figure: Figure) -> int:
    """Percentiles come after the mean."""
    is_first = figure.metric in FIRST and (figure.is_error or not figure.label("statistic"))
    return FIRST.index(figure.metric) if is_first else len(FIRST)


def _subjects(figures: Sequence[Figure]) -> list[str]:
    return list(dict.fromkeys(one.words["on"] for one in figures))


def _points(text: str, points: Sequence[Figure], sizes: dict[str, Record]) -> dict[str, Any]:
    points = sorted(points, key=lambda one: number(sizes[one.words["model"]].value) or 0.0)
    pairs = [(number(sizes[one.words["model"]].value) or 0.0, number(one.record.value) or 0.0) for one in points]
    best = [not any(other != pair and _beats(other, pair) for other in pairs) for pair in pairs]
    names = [one.words["model"] for one in points]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "textposition": _sides(best),
        "textfont": {"size": 10},
        "name": text,
        "x": [sizes[one.words["model"]].value for one in points],
        "y": [one.record.value for one in points],
        "text": [name if on_front else "" for name, on_front in zip(names, best, strict=True)],
        "tips": [
            f"{name}: perplexity {shown(loss)}, {shown(size)}B" for name, (size, loss) in zip(names, pairs, strict=True)
        ],
        "marker": {"size": 9, "color": "@0", "symbol": ["circle" if one else "circle-open" for one in best]},
    }


def _sides(named: Sequence[bool]) -> list[str]:
    """Names above and below in turns, so that those of neighbours do not meet."""
    return ["top right" if sum(named[:index]) % 2 else "bottom left" for index in range(len(named))]


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1]
