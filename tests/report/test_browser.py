"""The page in a real browser, from a file: it draws, sorts, filters and computes, light and dark, wide and narrow."""

import os
from pathlib import Path

import pytest

from tilepress.report import render_page, sections, write_text

from . import samples
from .browser import Browser

WORK = """
const $ = (id) => document.getElementById(id), found = { hacked: window.hacked ?? null };
await Page.drawAll();
found.plots = Page.plots().length;
found.empty = Page.plots().filter((one) => !one.querySelector(".main-svg, canvas")).length;
found.undrawn = Page.plots().filter((one) => one.dataset.drawn !== "yes").map((one) => one.textContent);
found.images = document.querySelectorAll("img").length;

const table = [...document.querySelectorAll("table.sortable")].find((one) => one.textContent.includes("KL divergence"));
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
const button = table.tHead.rows[0].cells[2].querySelector("button");
found.unsorted = column();
button.click();
found.rising = column();
button.click();
found.falling = column();
found.says = table.tHead.rows[0].cells[2].getAttribute("aria-sort");

const form = document.querySelector("#papers form"), rows = () => [...document.querySelectorAll("#papers tbody tr")];
const shown = (fields) => {
  for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
  form.dispatchEvent(new Event("input", { bubbles: true }));
  const count = rows().filter((row) => row.getClientRects().length > 0).length;
  form.reset();
  return [count, form.querySelector(".count").textContent];
};
found.all = shown({});
found.deca = shown({ paper: "deca" });
found.deviates = shown({ state: "deviates" });
found.far = shown({ deviation: "20" });
found.words = shown({ words: "table3 mxu" });
found.nothing = shown({ paper: "deca", state: "matches" });

const controls = $("controls").elements;
const choose = (fields) => {
  for (const [name, value] of Object.entries(fields)) controls[name].value = value;
  $("controls").dispatchEvent(new Event("input", { bubbles: true }));
  return [$("bound").textContent, $("rate").textContent, $("moves").tBodies[0].rows.length];
};
found.start = choose({});
found.density = choose({ density: "100" });
found.batch = choose({ batch: "4" });
found.engine = choose({ width: "3", tables: "2" });
found.software = choose({ decompressor: "libxsmm", format: "mxfp4" });
found.gpu = choose({ machine: "h100-80gb-pcie" });
found.without = controls.decompressor.value;
choose({ machine: "spr-ddr", decompressor: "libxsmm", format: "int2:g32" });
found.problem = $("problem").hidden ? null : $("problem").textContent;
found.command = (choose({ decompressor: "deca", format: "bf8" }), $("explorer-command").textContent);

const before = getComputedStyle(document.body).backgroundColor;
$("theme").click();
found.theme = [before, getComputedStyle(document.body).backgroundColor];
return found;
"""
DARK = ["--allow-file-access-from-files", "--blink-settings=preferredColorScheme=0"]
PHONE = """
const frame = document.querySelector("iframe");
const Page = frame.contentWindow.eval("Page"), root = frame.contentDocument.documentElement;
await Page.drawAll();
return { width: root.clientWidth, scroll: root.scrollWidth, dark: Page.isDark(), page: Page.css("--page"),
  plots: Page.plots().map((one) => one.querySelector(".main-svg")?.getBoundingClientRect().right) };
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """For pages and screenshots; TILEPRESS_SCREENSHOTS names one that stays."""
    kept = os.environ.get("TILEPRESS_SCREENSHOTS")
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
    return Path(kept) if kept else tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return Browser.here(tmp_path_factory.mktemp("chromium"))


@pytest.fixture(scope="module")
def page(folder):
    path = folder / "report.html"
    write_text(path, render_page("Tilepress report", "samples", sections(samples.everything()), "tilepress report"))
    return path


@pytest.fixture(scope="module")
def phone(folder, page):
    """The page in a frame, for windows of a browser are never narrower than 500 pixels."""
    path = folder / "phone.html"
    frame = f'<iframe src="{page.name}" width="390" height="840" style="border:0"></iframe>'
    write_text(path, f"<!doctype html><html><head></head><body style='margin:0'>{frame}</body></html>")
    return path


@pytest.fixture(scope="module")
def worked(browser, page):
    answer = browser.run(page, WORK)
    assert "failure" not in answer["found"], answer["found"]
    return answer


def test_it_loads_without_a_word_on_the_console(worked):
    assert worked["problems"] == []


def test_every_plot_draws(worked):
    found = worked["found"]
    assert found["plots"] > 10 and found["empty"] == 0 and found["undrawn"] == []


def test_no_record_became_html(worked):
    assert worked["found"]["hacked"] is None and worked["found"]["images"] == 0


def test_tables_sort(worked):
    found = worked["found"]
    assert found["unsorted"] == ["0.3125", "0.0625", "0.5"]
    assert found["rising"] == ["0.0625", "0.3125", "0.5"] and found["falling"] == ["0.5", "0.3125", "0.0625"]
    assert found["says"] == "descending"


def test_filters_filter(worked):
    found, whole = worked["found"], len(samples.reproductions())
    assert found["all"] == [whole, f"{whole} of {whole} rows"]
    assert found["deca"][0] == 2 and found["deviates"][0] == 2 and found["words"][0] == 1
    assert found["far"] == [1, f"1 of {whole} rows"] and found["nothing"][0] == 0


def test_sliders_change_the_numbers(worked):
    found = worked["found"]
    assert found["start"] == ["bound by memory", "2.615 TFLOPS", 6]
    assert found["density"][1] != found["start"][1] and found["batch"][1] != found["density"][1]
    assert found["engine"][0] == "bound by vector" and found["software"][1] != found["engine"][1]
    assert found["gpu"][0] == "bound by memory" and found["without"] == "none"
    assert "nobody has counted" in found["problem"]
    assert found["command"].endswith("--density 1 --batch 16 --decompressor deca:w8:l4")


def test_the_explorer_begins_where_python_does(worked, tmp_path):
    from tilepress.formats import parse_weight
    from tilepress.hardware import read_machine
    from tilepress.roofsurface import Deca, predict

    expected = predict(read_machine("spr-hbm"), parse_weight("bf8"), 0.2, Deca(32, 8))
    assert worked["found"]["start"][1] == f"{expected.flops / 1e12:.4g} TFLOPS"


def test_light_and_dark(worked):
    assert worked["found"]["theme"] == ["rgb(255, 255, 255)", "rgb(20, 24, 28)"]


def test_a_phone_in_the_dark_shows_it_whole(browser, phone):
    answer = browser.run(phone, PHONE, DARK)
    found = answer["found"]
    assert answer["problems"] == [] and found["dark"] and found["page"] == "#14181c"
    assert found["scroll"] <= found["width"] == 390
    assert all(0 < right <= 390 for right in found["plots"])


def test_screenshots_to_look_at(browser, folder, page, phone):
    browser.screenshot(page, folder / "report.png", "1300,2400")
    browser.screenshot(phone, folder / "phone.png", "500,840", DARK)
