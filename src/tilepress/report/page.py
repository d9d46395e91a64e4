"""Sections as one HTML page that needs nothing but itself. Whatever comes from records is escaped."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import count
from string import Template
from typing import Any

from ..records import Record, Reproduction
from .blocks import Block, Card, Cards, Cell, Comparison, Plot, Section, Sources, Surface, Table, raw, text, unit_text
from .comparison import ALONE, COLUMNS, deviation_size, deviation_text
from .explorer import explorer_data

SCRIPTS = ("roofsurface.js", "page.js", "surfaces.js", "explorer.js")
LONG = 40  # rows of a table that is closed at first
TEMPLATES = ("hovertemplate", "texttemplate")  # of plotly's; what they take from records is escaped in its own place


def asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")


def render_page(
    title: str, subtitle: str, sections: Sequence[Section], command: str, records: Sequence[Record] = ()
) -> str:
    """`records`: for the explorer, which has the machines that they are of."""
    from plotly.offline import get_plotlyjs

    numbers = count()
    parts = [_section(section, numbers) for section in sections]
    links = [*((section.key, section.title) for section in sections), ("explorer", "Explorer"), ("words", "Words")]
    return Template(asset("page.html")).substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        style=asset("page.css"),
        navigation=" ".join(f'<a href="#{key}">{html.escape(name)}</a>' for key, name in links),
        sections="\n".join(parts),
        explorer=asset("explorer.html"),
        words=asset("words.html"),
        command=html.escape(command),
        explorer_data=_json(explorer_data(records)),
        plotly=get_plotlyjs(),
        scripts="\n".join(map(asset, SCRIPTS)),
    )


def _section(section: Section, numbers: "count[int]") -> str:
    blocks = "\n".join(_block(block, numbers) for block in section.blocks)
    head = f'<h2>{html.escape(section.title)}</h2>\n<p class="about">{html.escape(section.about)}</p>'
    return f'<section id="{section.key}">\n{head}\n{blocks}\n</section>'


def _block(block: Block, numbers: "count[int]") -> str:
    if isinstance(block, Cards):
        return f'<div class="cards">{"".join(map(_card, block.cards))}</div>'
    if isinstance(block, Plot):
        return _plot(block, next(numbers))
    if isinstance(block, Surface):
        return _surface(block, next(numbers))
    if isinstance(block, Comparison):
        return _comparison(block, next(numbers))
    return _table(block, next(numbers))


def _card(card: Card) -> str:
    parts = (("label", card.label), ("figure", card.figure), ("detail", card.detail))
    lines = [f'<div class="{kind}">{html.escape(words)}</div>' for kind, words in parts]
    return f'<div class="card">{"".join(lines)}</div>'


def _plot(plot: Plot, number: int) -> str:
    data = {"traces": _escaped(plot.traces), "layout": _escaped(plot.layout)}
    drawing = f'<div class="plot" data-plot="plot-{number}"{_height(plot)}></div>'
    return _figure(plot.title, drawing + _data(number, data) + _note(plot.note) + _again(plot.sources))


def _surface(surface: Surface, number: int) -> str:
    points = _escaped(surface.points)
    data = {"rates": surface.rates, "flops": surface.flops_per_operation, "points": points}
    drawings = [
        f'<div class="plot tall" data-plot="plot-{number}" data-kind="{kind}"></div>' for kind in ("surface", "bord")
    ]
    return _figure(
        surface.title, f'<div class="pair">{"".join(drawings)}</div>{_data(number, data)}{_again(surface.sources)}'
    )


def _figure(title: str, content: str) -> str:
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{content}</figure>"


def _height(plot: Plot) -> str:
    return f' style="min-height:{int(plot.layout["height"])}px"' if "height" in plot.layout else ""


def _data(number: int, data: Any) -> str:
    return f'<script id="plot-{number}" type="application/json">{_json(data)}</script>'


def _json(data: Any) -> str:
    """That cannot end the script which it stands in."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _escaped(value: Any) -> Any:
    """plotly takes some HTML in texts: here none of them has any."""
    if isinstance(value, str):
        return html.escape(value, quote=False)
    if isinstance(value, dict):
        return {key: one if key in TEMPLATES else _escaped(one) for key, one in value.items()}
    return [_escaped(one) for one in value] if isinstance(value, list | tuple) else value


def _note(note: str) -> str:
    return f'<p class="note">{html.escape(note)}</p>' if note else ""


def _again(sources: Sources) -> str:
    """Where it comes from, and how to get it again."""
    where = html.escape(" · ".join([", ".join(sources.origins), "; ".join(sources.machines)]))
    commands = html.escape("\n".join(sources.commands))
    which = "the command" if len(sources.commands) == 1 else f"{len(sources.commands)} commands"
    return f'<details class="again"><summary>{where} · {which}</summary><pre>{commands}</pre></details>'


def _table(table: Table, number: int) -> str:
    head = "".join(_heading(column, _is_figures(table, index)) for index, column in enumerate(table.columns))
    rows = "\n".join(f"<tr>{''.join(_cells(row, table.words))}</tr>" for row in table.rows)
    content = _scrolled(number, head, rows) + _note(table.note) + _again(table.sources)
    title = html.escape(table.title)
    if len(table.rows) <= LONG and not table.closed:
        return f"<h3>{title}</h3>{content}"
    search = '<label>Words <input type="search" name="words"></label>'
    summary = f"<summary>{title}: {len(table.rows)} rows</summary>"
    return f'<details class="long">{summary}{_form(number, search)}{content}</details>'


def _scrolled(number: int, head: str, rows: str) -> str:
    table = f'<table class="sortable" id="table-{number}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def _is_figures(table: Table, index: int) -> bool:
    """Whether a column is to the right, as figures are."""
    return index >= table.words and any(not isinstance(row[index], str | None) for row in table.rows)


def _heading(name: str, of_figures: bool) -> str:
    return f"<th{' class=number' if of_figures else ''}>{html.escape(name)}</th>"


def _cells(row: Sequence[Cell], words: int) -> list[str]:
    kinds = ["word" if index < words or isinstance(cell, str) else "number" for index, cell in enumerate(row)]
    return [_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)]


def _cell(cell: Cell, kind: str) -> str:
    """With what it is sorted by, where that is not what is shown."""
    value, shown = raw(cell), text(cell)
    key = "" if value is None else f"{value:d}" if isinstance(value, bool) else str(value)
    data = "" if key == shown else f' data-v="{html.escape(key)}"'
    return f"<td class={kind}{data}>{html.escape(shown)}</td>"


def _form(number: int, fields: str) -> str:
    return f'<form class="filters" data-table="table-{number}">{fields}<span class="count"></span></form>'


def _comparison(block: Comparison, number: int) -> str:
    papers = dict.fromkeys(one.item.partition("/")[0] for one in block.records)
    states = dict.fromkeys(one.state or ALONE for one in block.records)
    fields = _select("paper", papers) + _select("state", states)
    limit = '<input type="number" name="deviation" min="0" step="any">'
    fields += f"<label>Deviation, % or points, at least {limit}</label>"
    fields += '<label>Words <input type="search" name="words"></label>'
    head = "".join(_heading(name, name in ("paper", "ours", "deviation")) for name in COLUMNS)
    rows = "\n".join(map(_compared, block.records))
    return f"{_form(number, fields)}{_scrolled(number, head, rows)}{_again(block.sources)}"


def _select(name: str, values: Sequence[str] | dict[str, None]) -> str:
    options = "".join(f'<option value="{html.escape(value)}">{html.escape(value)}</option>' for value in values)
    return f'<label>{name.capitalize()} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _compared(one: Reproduction) -> str:
    size, state = deviation_size(one), one.state or ALONE
    paper = html.escape(one.item.partition("/")[0])
    data = f'data-paper="{paper}" data-state="{html.escape(state)}" data-deviation="{"" if size is None else size}"'
    by = one.deviation if size is None or one.unit == "%" else 100 * (one.deviation or 0.0)
    deviation = f'<td class=number data-v="{"" if by is None else by}">{deviation_text(one)}</td>'
    words = "".join(_cell(value, "word") for value in (one.item, one.row, one.column, unit_text(one.unit)))
    figures = "".join(_cell(value, "number") for value in (one.paper, one.value)) + deviation
    mark = f'<td class="word state-{state.partition(" ")[0]}">{html.escape(state)}</td>'
    return f"<tr {data}>{words}{figures}{mark}{_cell(one.origin, 'word')}{_cell(one.note, 'name')}</tr>"
