"""One page that needs nothing but itself, in which no record becomes HTML."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tilepress.report import read_records, render_page, sections
from tilepress.report.explorer import explorer_data

from . import samples

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
HARMLESS = {"id", "class", "type", "name", "value", "href", "content", "charset", "lang", "style", "min", "max", "step",
            "aria-label", "aria-live", "autocomplete", "hidden", "for", "scope", "role", "tabindex",
            "aria-hidden"}  # fmt: skip


class Elements(HTMLParser):
    """Every element with its attributes, and the texts of scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self._script = [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._script = dict(attributes) if tag == "script" else None

    def handle_data(self, data):
        if self._script is not None:
            self.scripts.append((self._script, data))
            self._script = None


@pytest.fixture(scope="module")
def page():
    return render_page(samples.HOSTILE, "a <b>", sections(samples.everything()), samples.HOSTILE)


@pytest.fixture(scope="module")
def elements(page):
    return Elements(page)


def test_nothing_is_fetched(elements):
    for tag, attributes in elements.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed") and "src" not in attributes
        assert attributes.get("href", "#").startswith("#")


@pytest.mark.parametrize("paths, most", [([], 150_000), ([RESULTS], 2_000_000)], ids=["explorer", "saved results"])
def test_a_page_is_under_two_megabytes(paths, most):
    records = read_records(paths)
    assert len(render_page("t", "s", sections(records), "c", records).encode()) < most


def test_records_are_never_html(page, elements):
    assert "<img" not in page
    for _, attributes in elements.tags:
        assert all(name in HARMLESS or name.startswith("data-") for name in attributes)
    assert page.count("<script") == page.count("</script>")
    assert "<title>&lt;img src=x" in page


def test_data_of_plots_are_json_without_html(elements):
    data = [text for attributes, text in elements.scripts if attributes.get("type") == "application/json"]
    assert len(data) > 10
    assert not any("<" in text for text in data)
    values = [json.loads(text, parse_constant=pytest.fail) for text in data]
    assert any("<img" in json.dumps(value) for value in values), "a hostile name is in a plot, as JSON"


def test_every_link_leads_somewhere(elements):
    ids = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements.tags:
        assert attributes.get("href", "#top")[1:] in {*ids, "top"}


def test_commands_stand_with_every_plot_and_table(page):
    assert page.count('<details class="again">') >= page.count("<figure>") + page.count("<table class=") - 2
    assert "tilepress bench model int4 --json" in page


def test_without_records_there_is_the_explorer_alone():
    page = render_page("t", "s", [], "c")
    assert re.findall(r'<section id="(.*?)"', page) == ["explorer", "words"]


def test_a_page_can_be_without_the_explorer():
    page = render_page("t", "s", sections(samples.searched()), "c", with_explorer=False)
    assert re.findall(r'<section id="(.*?)"', page) == ["summary", "search", "words"]
    assert "explorer-data" not in page and "#explorer" not in page and len(page.encode()) < 100_000


def test_the_explorer_has_the_machines_that_were_measured():
    data = explorer_data([*samples.measured(), *samples.layers(samples.THERE)])
    assert [name for name in data["machines"] if "," in name] == [samples.HERE]
    machine = data["machines"][samples.HERE]
    assert (machine["bandwidth"], machine["cycles"], machine["rows"], machine["argument"]) == (36.5e9, 5e9, 1, "here")
    assert machine["libxsmm"] is False and "threads: tilepress doctor" in machine["sources"]["memory"]
    less = [one for one in samples.measured() if one.metric != "matrix_rows"]
    assert samples.HERE not in explorer_data(less)["machines"]


def test_the_explorer_has_every_machine_and_format():
    data = explorer_data()
    assert data["machines"]["spr-hbm"]["matrixRate"] == 56 * 2.5e9 / 16
    assert data["machines"]["h100-80gb-pcie"]["vectorRate"] is None
    expected = {"name": "mxfp4", "bits": 4, "groupBits": 0.25, "integer": False}
    assert data["formats"]["mxfp4"] == expected and data["libxsmm"]["8 sparse"] == 142
    assert data["kernels"][0]["name"] == "linear_f32_i8_int/neon_dotprod" and data["kernels"][0]["operations"] == 76
