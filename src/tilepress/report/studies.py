"""Items of papers as plots: ours, and the paper's values beside it as marks of their own."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ..records import Reproduction
from .blocks import Plot, Section, Sources, number, unit_text
from .plots import COLOURS, Point, bars, heat_map, lines

MAPS = ("anda/fig5", "anda/fig7", "anda/fig14", "harmonia/fig4", "sparamx/fig14")
SECTIONS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "precision": (
        "Precision of activations",
        "What mantissas cost and save, by group, tensor type and tolerance.",
        ("anda/fig5", "anda/fig6", "anda/fig7", "anda/fig14", "anda/fig18", "anda/table2", "harmonia/fig4"),
    ),
    "kv": (
        "The KV cache",
        "What each step of Harmonia's cache and SparAMX' sparse one costs.",
        (
            "harmonia/ablation", "harmonia/fig5", "harmonia/fig8", "harmonia/offsets", "harmonia/rotation",
            "harmonia/context", "harmonia/retrieval", "harmonia/table1", "harmonia/storage", "sparamx/fig14",
            "sparamx/fig17", "sparamx/fig18",
        ),
    ),
    "energy": (
        "Energy and area",
        "Breakdowns of accelerators, and ratios between them.",
        (
            "anda/fig15", "anda/fig16", "anda/fig17", "anda/table3", "anda/fig18-speed", "harmonia/fig16-linear",
            "harmonia/fig16-joint", "harmonia/fig17", "harmonia/fig19", "harmonia/synthesis", "harmonia/converter",
        ),
    ),
}  # fmt: skip
PAPERS = {"sparamx": "SparAMX", "deca": "DECA", "anda": "Anda", "harmonia": "Harmonia"}
LEGEND = "Bars and whole lines are ours, diamonds and dotted lines the paper's."
TRACE = "anda/fig9"  # is drawn with the searches
FEW = 3  # columns that a title names
FEWEST = 3  # labels that make a line
MANY = 8  # lines that a plot still shows
BARS = 48  # that a plot still shows
LONG = 40  # rows or columns that a map still shows
SCALE = re.compile(r"[A-Za-z]*\s?([\d.]+)\s?(%|[A-Za-z]*)")


def study_sections(records: Sequence[Reproduction], titles: Mapping[str, str]) -> dict[str, Section]:
    """Key → section, of items that have something to draw: SECTIONS, then the rest by paper, "studies-deca" say."""
    named = {item for _, _, items in SECTIONS.values() for item in items} | {TRACE}
    rest = [item for item in dict.fromkeys(one.item for one in records) if item not in named]
    planned = dict(SECTIONS)
    for paper in dict.fromkeys([*PAPERS, *(item.partition("/")[0] for item in rest)]):
        items = tuple(item for item in rest if item.startswith(f"{paper}/"))
        planned[f"studies-{paper}"] = (f"More of {PAPERS.get(paper, paper)}'s paper", "", items)
    sections = {}
    for key, (title, about, items) in planned.items():
        blocks = [block for item in items for block in _item(item, records, titles)]
        if blocks:
            sections[key] = Section(key, title, f"{about} {LEGEND}".lstrip(), blocks)
    return sections


def _item(item: str, records: Sequence[Reproduction], titles: Mapping[str, str]) -> list[Plot]:
    cells = [one for one in records if one.item == item and number(one.value) is not None]
    title = f"{item}: {titles[item]}" if item in titles else item
    units = dict.fromkeys(one.unit for one in cells)
    parts = [part for unit in units for part in _joined([one for one in cells if one.unit == unit])]
    plots = [_plot(_titled(title, part, parts), part[0].unit, part, item in MAPS) for part in parts]
    return [plot for plot in plots if plot is not None]


def _joined(cells: Sequence[Reproduction]) -> list[list[Reproduction]]:
    """Cells that share rows or columns, together: a table of two kinds of rows is two plots. What stands alone is left
    over for one of its own."""
    parts: list[list[Reproduction]] = []
    for one in cells:
        near = [part for part in parts if any(one.row == other.row or one.column == other.column for other in part)]
        parts = [part for part in parts if part not in near] + [[*(cell for part in near for cell in part), one]]
    alone = [cell for part in parts if len(part) == 1 for cell in part]
    return [*(part for part in parts if len(part) > 1), *([alone] if alone else [])]


def _titled(title: str, part: Sequence[Reproduction], parts: Sequence[Sequence[Reproduction]]) -> str:
    """With what this plot is of, where the item has several."""
    if len(parts) == 1:
        return title
    rows, columns = _rows_and_columns(part)
    if shared := _ending(rows):
        return f"{title}: {shared}"
    alike = sum({one.column for one in other} == set(columns) for other in parts)
    if len(columns) <= FEW and alike == 1:
        return f"{title}: {', '.join(columns)}"
    if len(rows) == 1:
        return f"{title}: {rows[0]}"
    return f"{title}, in {unit_text(part[0].unit)}" if part[0].unit else title


def _plot(title: str, unit: str, cells: Sequence[Reproduction], as_map: bool) -> Plot | None:
    """Lines over what rises or falls, bars of a few, a map of many; None of one alone, or of too many."""
    rows, columns = _labels(cells)
    if len(cells) < 2:
        return None
    sources = Sources.of(cells)
    if as_map and len(columns) > 1:
        return _map(title, unit, cells, rows, columns, sources)
    if len(columns) >= FEWEST and _is_scale(columns) and len(rows) <= MANY:
        ours, paper = _series(cells, rows)
        return lines(title, unit, ours, sources, dashed=paper, of=_ending(rows))
    over_rows = len(columns) <= COLOURS and (len(rows) >= len(columns) / 2 or len(rows) > COLOURS)
    if len(rows) * len(columns) <= BARS and len(columns if over_rows else rows) <= COLOURS:
        ours, paper = _series(cells, {one: one for one in columns}, rows) if over_rows else _series(cells, rows)
        return bars(title, unit, ours, sources, marks=paper)
    return _map(title, unit, cells, rows, columns, sources) if len(rows) <= LONG and len(columns) <= LONG else None


def _map(
    title: str, unit: str, cells: Sequence[Reproduction], rows: Mapping[str, str], columns: Sequence[str],
    sources: Sources,
) -> Plot:  # fmt: skip
    values = {(one.row, one.column): number(one.value) for one in cells}
    table = {label: [values.get((row, column)) for column in columns] for row, label in rows.items()}
    return heat_map(title, unit, columns, table, sources)


def _labels(cells: Sequence[Reproduction]) -> tuple[dict[str, str], list[str]]:
    """Row → what to call it, without what all rows begin and end with; columns."""
    rows, columns = _rows_and_columns(cells)
    if len(rows) == 1:
        return {rows[0]: rows[0]}, columns
    heads, ending = {row.partition(", ")[0] for row in rows}, _ending(rows)
    shared = f"{heads.pop()}, " if len(heads) == 1 else ""
    return {row: row.removeprefix(shared).removesuffix(f", {ending}") for row in rows}, columns


def _rows_and_columns(cells: Sequence[Reproduction]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(one.row for one in cells)), list(dict.fromkeys(one.column for one in cells))


def _ending(rows: Iterable[str]) -> str:
    """What comes after the last comma of all rows, if that is the same."""
    endings = {row.rpartition(", ")[2] if ", " in row else "" for row in rows}
    return endings.pop() if len(endings) == 1 else ""


def _series(
    cells: Sequence[Reproduction], names: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> tuple[dict[str, list[Point]], dict[str, list[Point]]]:
    """Ours and the paper's, by name: a series a row over columns, or, with `labels` of rows, a series a column."""
    ours: dict[str, list[Point]] = {}
    paper: dict[str, list[Point]] = {}
    for one in cells:
        name, label = (names[one.column], labels[one.row]) if labels else (names[one.row], one.column)
        ours.setdefault(name, []).append((label, number(one.value)))
        if number(one.paper) is not None:
            paper.setdefault(name, []).append((label, number(one.paper)))
    return ours, paper


def _is_scale(columns: Sequence[str]) -> bool:
    """Whether columns are numbers that rise or fall: m4, m5, …; 512 tokens, 1024 tokens, …"""
    matches = [SCALE.fullmatch(column) for column in columns]
    try:
        values = [float(match[1]) for match in matches if match]
    except ValueError:
        return False
    return len(values) == len(columns) and values in (sorted(values), sorted(values, reverse=True))
