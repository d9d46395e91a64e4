"""The explorer's machines to change and its state in the page's address."""

import pytest

from tilepress._files import write_text
from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.report import render_page, sections
from tilepress.roofsurface import Deca, predict

STATE = """
const $ = (id) => document.getElementById(id), fields = $("controls").elements;
const shown = () => ({ machine: fields.machine.value, bandwidth: fields.bandwidth.value, density: fields.density.value,
  rate: $("rate").textContent, changed: !$("changed").hidden,
  problem: $("problem").hidden ? "" : $("problem").textContent,
  hash: location.hash });
const type = (values) => {
  for (const [name, value] of Object.entries(values)) fields[name].value = value;
  fields.machine.dispatchEvent(new Event("input", { bubbles: true }));
  return shown();
};
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "report.html"
    write_text(path, render_page("Tilepress report", "alone", sections([]), "tilepress report"))
    return path


def expected(**changes):
    machine = read_machine("spr-hbm").changed(**changes)
    return f"{predict(machine, parse_weight('bf8'), 0.2, Deca(32, 8)).flops / 1e12:.4g} TFLOPS"


def test_typed_constants_change_the_machine_and_the_address_brings_them_back(browser, page):
    tab = browser.open(page)
    before = tab.run(f"{STATE} return shown();")
    assert (before["rate"], before["bandwidth"], before["changed"]) == (expected(), "850", False) and not before["hash"]
    typed = tab.run(f"{STATE} return type({{ bandwidth: '500', cores: '28' }});")
    assert typed["rate"] == expected(memory={"bandwidth": 5e11}, cores=28) != expected() and typed["changed"]
    tab = browser.open(page)
    there = f"location.hash = {typed['hash']!r}; await new Promise((done) => setTimeout(done, 200));"
    restored = tab.run(f"{STATE} {there} return shown();")
    assert restored == typed
    again = tab.run(f"{STATE} $('as-described').click(); return shown();")
    assert again["rate"] == expected() and not again["changed"] and "bandwidth" not in again["hash"]


@pytest.mark.parametrize(
    "fragment",
    ["machine=none", "density=0", "density=1e9", "density=20&bandwidth=-1", "colour=red", "machine=grace&bandwidth=x",
     "format=%3Cimg%3E"],
)  # fmt: skip
def test_a_bad_address_is_ignored(browser, page, fragment):
    tab = browser.open(page)
    script = (
        f"location.hash = '#explore:{fragment}'; await new Promise((done) => setTimeout(done, 100)); return shown();"
    )
    seen = tab.run(STATE + script)
    assert (seen["machine"], seen["density"], seen["rate"], seen["changed"]) == ("spr-hbm", "20", expected(), False)
    assert tab.problems == []


def test_no_number_is_no_machine(browser, page):
    seen = browser.open(page).run(f"{STATE} return type({{ cores: '-2' }});")
    assert seen["problem"] == "Cores: give a number above 0" and seen["rate"] == ""


@pytest.mark.parametrize("name", ["grace", "graviton4"])
def test_arm_machines_run_our_kernels(browser, page, name):
    given = f"type({{ machine: '{name}' }});"
    given += "return type({ decompressor: 'kernels', format: 'int4:g32', density: '100', batch: '0' });"
    seen = browser.open(page).run(STATE + given)
    assert seen["problem"] == "" and seen["rate"].endswith(" TFLOPS") and not seen["changed"]


def test_sliders_have_names_and_say_their_values(browser, page):
    sliders = "[...document.querySelectorAll('input[type=range]')]"
    script = f"return {sliders}.map((one) => [one.labels[0].htmlFor === one.id, one.getAttribute('aria-valuetext')]);"
    assert browser.open(page).run(script) == [[True, "20 %"], [True, "1"], [True, "32"], [True, "8"]]


def test_the_surface_turns_by_keys(browser, page):
    script = """
    Explorer.look();
    await new Promise((done) => setTimeout(done, 200));
    const canvas = document.querySelector("#explorer-surface canvas"), before = canvas.toDataURL();
    const press = (key) => { canvas.dispatchEvent(new KeyboardEvent("keydown", { key })); return canvas.toDataURL(); };
    return [press("ArrowLeft") !== before, press("Home") === before];
    """
    assert browser.open(page).run(script) == [True, True]
