"""Sections as one HTML page that needs nothing but itself."""

from collections.abc import Sequence
from importlib.resources import files

from ..records import Record
from .blocks import Section
from .explorer import explorer_data
from .templating import as_it_is, render

SCRIPTS = ("roofsurface.js", "scales.js", "charts.js", "turning.js", "page.js", "surfaces.js")
EXPLORER = "explorer.js"


def asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")


def render_page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    command: str,
    records: Sequence[Record] = (),
    *,
    with_explorer: bool = True,
) -> str:
    """`records`: for the explorer, which has the machines that they are of."""
    scripts = [*SCRIPTS, *([EXPLORER] if with_explorer else [])]
    return render(
        "page.html",
        title=title,
        subtitle=subtitle,
        sections=sections,
        command=command,
        explorer=explorer_data(records) if with_explorer else None,
        style=as_it_is(asset("page.css")),
        scripts=as_it_is("\n".join(map(asset, scripts))),
    )
