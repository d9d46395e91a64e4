"""Jinja2 with what templates of a report ask for. Whatever comes from records is escaped."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..records import Reproduction
from .blocks import Block, Cell, Table, raw, text, unit_text
from .comparison import ALONE, COLUMNS, deviation_text

if TYPE_CHECKING:
    from jinja2 import Environment

LONG = 40  # rows of a table that is closed at first
FIRST = "summary"  # stands before the explorer, other sections after it
DIGITS = 7  # that a column is sorted by


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


def as_it_is(markup: str) -> Any:
    """HTML, CSS or a script of our own that is not to be escaped."""
    from markupsafe import Markup

    return Markup(markup)


@lru_cache(maxsize=1)
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: "" if value is None else value,
        trim_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False}
    environment.globals.update(COLUMNS=COLUMNS, LONG=LONG, FIRST=FIRST)
    filters = (kind, figure_columns, sort_key, paper_name, state_name, evidence_name)
    figures = (deviation_key, deviation_text, text, unit_text)
    environment.filters.update({function.__name__: function for function in (*filters, *figures)})
    return environment


def kind(block: Block) -> str:
    """The macro that shows it."""
    return type(block).__name__.lower()


def figure_columns(table: Table) -> list[str]:
    """Columns to the right, as figures are: those that are not words alone."""
    columns = list(enumerate(table.columns))[table.words :]
    return [name for index, name in columns if any(not isinstance(row[index], str | None) for row in table.rows)]


def sort_key(cell: Cell) -> str:
    value = raw(cell)
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return "" if value is None else f"{value:d}" if isinstance(value, bool) else str(value)


def paper_name(one: Reproduction) -> str:
    return one.item.partition("/")[0]


def state_name(one: Reproduction) -> str:
    return one.state or ALONE


def evidence_name(one: Reproduction) -> str:
    return one.evidence or ALONE


def deviation_key(one: Reproduction) -> float | None:
    """In per cent or points."""
    return one.deviation if one.deviation is None or one.unit == "%" else 100 * one.deviation
