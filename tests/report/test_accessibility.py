"""The page for readers who do not see it, or see little: axe-core's rules, headings in order, and its height."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.axe import serious_violations
from tilepress._files import write_text
from tilepress.report import read_records, render_page, sections

from . import samples

ROOT = Path(__file__).parents[2]
SCREEN, SCREENS = 900, 20
# Of thousands of rows the first eight of each table, which come from the same template as the others. The page of saved
# results has 122 plots, among which axe takes minutes: what they draw, the samples draw.
OPEN = """
document.querySelectorAll("details").forEach((one) => { one.open = true; });
document.querySelectorAll("tbody tr:nth-child(n+9)").forEach((one) => one.remove());
if (Page.plots().length < 60) Page.drawAll();
await new Promise((done) => setTimeout(done, 300));
"""
HEADINGS = "return [...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]));"


def everything():
    return [*samples.everything(), *samples.measured()]


PAGES = {  # name → records, and whether there is an explorer
    "samples": (everything, True),
    "saved results": (lambda: read_records([ROOT / "benchmarks" / "results"]), True),
    "search": (samples.searched, False),
    "simulate deca": (samples.simulated, False),
    "simulate compare": (samples.side_by_side, False),
    "roofsurface": (samples.roofs, False),
    "reproduce": (samples.reproductions, False),
}


def written(folder, name):
    make, with_explorer = PAGES[name]
    records = make()
    page = render_page("Title", name, sections(records), "command", records, with_explorer=with_explorer)
    write_text(folder / "page.html", page)
    return folder / "page.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(tmp_path_factory.mktemp("axe"), "samples")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(browser, tmp_path, name, dark):
    assert serious_violations(browser.open(written(tmp_path, name), dark=dark), OPEN) == []


def test_headings_are_in_order_and_all_tables_are_named(browser, page):
    tab = browser.open(page)
    levels = tab.run(HEADINGS)
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    tables = "[...document.querySelectorAll('table')].filter((one) => one.rows.length > 1)"
    assert tab.run(f"return {tables}.every((one) => one.caption?.textContent && one.querySelector('th[scope=row]'));")
    assert (
        tab.run("const skip = document.querySelector('a'); return document.querySelector(skip.hash).tagName;") == "MAIN"
    )


def test_saved_results_take_twenty_screens_and_the_explorer_is_first(browser, tmp_path):
    tab = browser.open(written(tmp_path, "saved results"), 1200, SCREEN)
    tab.run("Page.drawAll(); await new Promise((done) => setTimeout(done, 300));")
    assert tab.run("return document.documentElement.scrollHeight;") <= SCREENS * SCREEN
    assert tab.run("return [...document.querySelectorAll('main > section')].slice(0, 2).map((one) => one.id);") == [
        "summary", "explorer"]  # fmt: skip
