"""The page in a real browser, from a file: it draws, sorts, filters and computes, light and dark, wide and narrow."""

import pytest

from tilepress._files import write_text
from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.report import render_page, sections
from tilepress.roofsurface import Deca, Libxsmm, Nothing, predict
from tilepress.roofsurface.kernels import Kernel

from . import samples

WORK = """
const $ = (id) => document.getElementById(id), seen = { hacked: window.hacked ?? null };
await Page.drawAll();
seen.plots = Page.plots().length;
seen.empty = Page.plots().filter((one) => !one.querySelector(".mark, canvas")).length;
seen.undrawn = Page.plots().filter((one) => one.dataset.drawn !== "yes").map((one) => one.textContent);
document.querySelectorAll("details.more").forEach((one) => { one.open = true; });
const data = (one) => JSON.parse(document.getElementById(one.dataset.plot).textContent);
const flat = Page.plots().filter((one) => !one.dataset.kind);
const values = (trace) =>
  (trace.z ? trace.z.flat() : trace.orientation === "h" ? trace.x : trace.y).filter((one) => one !== null);
seen.marks = flat.map((one) => [
  one.querySelectorAll(".mark").length,
  data(one).traces.filter((trace) => trace.mode !== "lines").reduce((sum, trace) => sum + values(trace).length, 0)]);
const lengths = (one) => {
  const all = data(one).traces.flatMap((trace) => values(trace)), bars = [...one.querySelectorAll(".bar")];
  return bars.map((bar, index) => [Number(bar.getAttribute("width")), all[index]]).filter(([length]) => length > 2);
};
const isBars = (one) => data(one).traces.every((trace) => trace.type === "bar") && !data(one).layout.xaxis.range;
seen.scales = flat.filter(isBars).map((one) => lengths(one).map(([length, value]) => length / value));
seen.images = document.querySelectorAll("img").length;

const table = [...document.querySelectorAll("table.sortable")].find((one) => one.textContent.includes("KL divergence"));
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
const button = table.tHead.rows[0].cells[2].querySelector("button");
seen.unsorted = column();
button.click();
seen.rising = column();
button.click();
seen.falling = column();
seen.says = table.tHead.rows[0].cells[2].getAttribute("aria-sort");

const form = document.querySelector("#papers form"), rows = () => [...document.querySelectorAll("#papers tbody tr")];
const filtered = (fields) => {
  for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
  form.dispatchEvent(new Event("input", { bubbles: true }));
  const count = rows().filter((row) => row.getClientRects().length > 0).length;
  form.reset();
  return [count, form.querySelector(".count").textContent];
};
seen.all = filtered({});
seen.deca = filtered({ paper: "deca" });
seen.deviates = filtered({ state: "deviates" });
seen.fitted = filtered({ evidence: "fitted" });
seen.far = filtered({ deviation: "20" });
seen.words = filtered({ words: "table3 mxu" });
seen.nothing = filtered({ paper: "deca", state: "matches" });

const controls = $("controls").elements;
const choose = (fields) => {
  for (const [name, value] of Object.entries(fields)) controls[name].value = value;
  $("controls").dispatchEvent(new Event("input", { bubbles: true }));
  return [$("bound").textContent, $("rate").textContent, $("moves").tBodies[0].rows.length];
};
const texts = (one) => [...one.children].map((part) => part.textContent);
const shown = () => ({
  numbers: Object.fromEntries([...$("numbers").children].map(texts)),
  moves: [...$("moves").tBodies[0].rows].map(texts),
});
const twice = { machine: "spr-hbm", density: "50", batch: "2", width: "4", tables: "2" };
choose({ ...twice, decompressor: "deca", format: "mxfp4" });
seen.engine_shown = shown();
choose({ ...twice, decompressor: "libxsmm", format: "bf8" });
seen.software_shown = shown();
choose({ decompressor: "deca", format: "bf8", density: "20", batch: "0", width: "5", tables: "3" });

seen.start = choose({});
seen.density = choose({ density: "100" });
seen.batch = choose({ batch: "4" });
seen.engine = choose({ width: "3", tables: "2" });
seen.software = choose({ decompressor: "libxsmm", format: "mxfp4" });
seen.gpu = choose({ machine: "h100-80gb-pcie" });
seen.without = controls.decompressor.value;
seen.here = choose({ machine: "Neoverse-N1, 2 CPUs", decompressor: "libxsmm" });
seen.instead = controls.decompressor.value;
const ours = { machine: "Neoverse-N1, 2 CPUs", decompressor: "kernels", activations: "auto", format: "int4:g32" };
choose({ ...ours, density: "50", batch: "0" });
await Explorer.look();
seen.ours = [controls.decompressor.value, $("bound").textContent, $("explorer-command").textContent];
seen.ours_shown = shown();
seen.regions = [...document.querySelectorAll("#explorer-bord .legend li")].map((one) => one.textContent);
choose({ ...ours, batch: "1" });
seen.uncounted = [$("problem").textContent, $("rate").textContent];
choose({ machine: "spr-ddr", decompressor: "libxsmm", format: "int2:g32", density: "100", batch: "4" });
seen.problem = $("problem").hidden ? null : $("problem").textContent;
seen.command = (choose({ decompressor: "deca", format: "bf8" }), $("explorer-command").textContent);

const before = getComputedStyle(document.body).backgroundColor;
$("theme").click();
seen.theme = [before, getComputedStyle(document.body).backgroundColor, localStorage.getItem("tilepress-theme")];
localStorage.clear();
return seen;
"""
PHONE = """
await Page.drawAll();
const root = document.documentElement;
document.querySelectorAll("details.more").forEach((one) => { one.open = true; });
await new Promise((done) => setTimeout(done, 500));
const edges = Page.plots().map((one) => one.querySelector(".chart, canvas").getBoundingClientRect());
return { width: root.clientWidth, scroll: root.scrollWidth, dark: Page.isDark(), page: Page.css("--page"),
  left: Math.min(...edges.map((one) => one.left)), right: Math.max(...edges.map((one) => one.right)) };
"""

# How many plots are not drawn and how many commands not open when it is printed, and the width of the widest.
PRINTED = """
addEventListener("beforeprint", () => {
  const drawings = Page.plots().map((one) => one.querySelector(".chart"));
  const closed = document.querySelectorAll("details.again:not([open]), details.more:not([open])").length;
  const widths = drawings.map((one) => Number(one?.getAttribute("width")));
  window.printed = [drawings.filter((one) => one === null).length, closed, Math.max(...widths)];
});
"""


@pytest.fixture(scope="module")
def page(screenshots):
    path = screenshots / "report.html"
    records = [*samples.everything(), *samples.measured()]
    write_text(path, render_page("Tilepress report", "samples", sections(records), "tilepress report", records))
    return path


@pytest.fixture(scope="module")
def worked(browser, screenshots, page):
    """What the page did; what it said and asked for; a picture of it."""
    tab = browser.open(page)
    seen = tab.run(WORK)
    tab.screenshot(screenshots / "report.png")
    return seen | {"problems": tab.problems, "requests": tab.requests}


def test_it_loads_without_a_word_on_the_console(worked):
    assert worked["problems"] == []


def test_it_comes_from_a_file_and_asks_for_nothing_else(worked, page):
    first, *later = worked["requests"]
    assert first == page.resolve().as_uri() and all(one.startswith(("data:", "blob:")) for one in later)


def test_every_plot_draws(worked):
    assert worked["plots"] > 10 and worked["empty"] == 0 and worked["undrawn"] == []


def test_every_figure_has_its_mark(worked):
    assert len(worked["marks"]) > 8
    assert all(drawn == given > 0 for drawn, given in worked["marks"]), worked["marks"]


def test_bars_are_as_long_as_their_figures(worked):
    scales = [one for one in worked["scales"] if one]
    assert len(scales) >= 3
    for of_bars in scales:
        assert of_bars == pytest.approx([of_bars[0]] * len(of_bars), rel=1e-6)


def test_no_record_became_html(worked):
    assert worked["hacked"] is None and worked["images"] == 0


def test_tables_sort(worked):
    assert worked["unsorted"] == ["0.3125", "0.0625", "0.5"]
    assert worked["rising"] == ["0.0625", "0.3125", "0.5"] and worked["falling"] == ["0.5", "0.3125", "0.0625"]
    assert worked["says"] == "descending"


def test_filters_filter(worked):
    whole = len(samples.reproductions())
    assert worked["all"] == [whole, f"{whole} of {whole} rows"]
    assert (
        worked["deca"][0] == 2 and worked["deviates"][0] == 2 and worked["fitted"][0] == 1 and worked["words"][0] == 1
    )
    assert worked["far"] == [1, f"1 of {whole} rows"] and worked["nothing"][0] == 0


def test_sliders_change_the_numbers(worked):
    assert worked["start"] == ["bound by memory", "2.615 TFLOPS", 6]
    assert worked["density"][1] != worked["start"][1] and worked["batch"][1] != worked["density"][1]
    assert worked["engine"][0] == "bound by vector" and worked["software"][1] != worked["engine"][1]
    assert worked["gpu"][0] == "bound by memory" and worked["without"] == "none"
    assert worked["here"][1] != worked["gpu"][1] and worked["instead"] == "deca"
    assert "nobody has counted" in worked["problem"]
    assert worked["command"].endswith("--density 1 --batch 16 --decompressor deca:w8:l4")


def test_the_explorer_begins_where_python_does(worked):
    expected = predict(read_machine("spr-hbm"), parse_weight("bf8"), 0.2, Deca(32, 8))
    assert worked["start"][1] == f"{expected.flops / 1e12:.4g} TFLOPS"


@pytest.mark.parametrize(
    "name, format, decompressor", [("engine", "mxfp4", Deca(16, 4)), ("software", "bf8", Libxsmm())]
)
def test_all_that_the_explorer_shows_is_what_python_finds(worked, name, format, decompressor):
    machine, weights = read_machine("spr-hbm"), parse_weight(format)
    now = predict(machine, weights, 0.5, decompressor, 4)
    assert worked[f"{name}_shown"]["numbers"] == numbers_of(
        now, predict(machine, parse_weight("bf16"), 1, Nothing(), 4)
    )
    faster = {
        "twice the memory bandwidth": machine.changed(memory={"bandwidth": 2 * machine.memory.bandwidth}),
        "twice the cores, or the clock": machine.changed(cores=2 * machine.cores),
    }
    moves = {label: predict(one, weights, 0.5, decompressor, 4) for label, one in faster.items()}
    moves["half the density"] = predict(machine, weights, 0.25, decompressor, 4)
    moves["twice the batch"] = predict(machine, weights, 0.5, decompressor, 8)
    if name == "engine":
        moves["W = 32"] = predict(machine, weights, 0.5, Deca(32, 4), 4)
        moves["L = 8"] = predict(machine, weights, 0.5, Deca(16, 8), 4)
    else:
        moves["twice the vector units"] = predict(machine, weights, 0.5, Libxsmm(faster=2), 4)
        moves["DECA with the W and L above"] = predict(machine, weights, 0.5, Deca(16, 4), 4)
    expected = [
        [label, _tera(one.flops), f"{one.flops / now.flops:.2f}", one.surface.binding] for label, one in moves.items()
    ]
    assert worked[f"{name}_shown"]["moves"] == expected


def test_the_explorer_knows_our_kernels(worked):
    decompressor, bound, command = worked["ours"]
    assert decompressor == "kernels" and bound == "bound by front end"
    assert command == (
        "tilepress roofsurface --machine here --weights int4:g32 --density 0.5 --batch 1 --decompressor kernels "
        "--acts int8"
    )
    shown = worked["ours_shown"]
    asked = Kernel("linear_f32_i8_int/neon_dotprod", "int8").demands(parse_weight("int4:g32"), 0.5)["front end"]
    assert shown["numbers"]["kernel"] == "linear_f32_i8_int/neon_dotprod"
    assert shown["numbers"]["front end asked"] == f"{asked:.4g} instructions an operation"
    assert shown["numbers"]["front end allows"] == f"{_tera(512 * 2 * 2.5e9 * 4 / asked)} TFLOPS"
    assert worked["regions"] == ["bound by memory", "bound by vector", "bound by front end"]
    moves = {label: (rate, then) for label, rate, _, then in shown["moves"]}
    assert "nobody has counted 2 rows of sparse int4:g32+int8" in moves["twice the batch"][1]
    assert worked["uncounted"][0].endswith(", only 1") and worked["uncounted"][1] == ""


def numbers_of(now, plain):
    memory, vector = now.demands["memory"], now.demands["vector"]
    allows = {f"{domain} allows": limit * 512 * now.rows for domain, limit in now.surface.limits.items()}
    return {
        "Roof-Surface": f"{_tera(now.flops)} TFLOPS",
        "roofline, without vector units": f"{_tera(now.roofline_flops)} TFLOPS",
        "weights read": f"{now.bandwidth / 1e9:.4g} GB/s",
        "a billion weights take": f"{1e12 * 4 / now.flops:.4g} ms",
        "over BF16 weights": f"{now.flops / plain.flops:.4g} ×",
        "memory asked": f"{memory:.4g} bytes an operation; AI_XM {1 / memory:.4g}",
        "vector asked": f"{vector:.4g} an operation; AI_XV {1 / vector:.4g}",
        **{name: f"{_tera(flops)} TFLOPS" for name, flops in allows.items()},
    }


def _tera(flops):
    return f"{flops / 1e12:.4g}"


def test_light_and_dark(worked):
    assert worked["theme"] == ["rgb(255, 255, 255)", "rgb(20, 24, 28)", "dark"]


def test_a_phone_in_the_dark_shows_it_whole(browser, screenshots, page):
    tab = browser.open(page, 390, 840, dark=True, phone=True)
    seen = tab.run(PHONE)
    tab.screenshot(screenshots / "phone.png")
    assert tab.problems == [] and seen["dark"] and seen["page"] == "#14181c"
    assert seen["scroll"] <= seen["width"] == 390
    assert seen["left"] >= 0 and seen["right"] <= 390


def test_paper_is_white_and_shows_everything(browser, screenshots):
    records = [*samples.quality(), *samples.reproductions()]
    page = screenshots / "paper.html"
    write_text(page, render_page("Tilepress report", "samples", sections(records), "tilepress report"))
    tab = browser.open(page, dark=True)
    tab.run(PRINTED)
    tab.print(screenshots / "paper.pdf")
    assert (screenshots / "paper.pdf").read_bytes().startswith(b"%PDF") and tab.problems == []
    assert tab.run("return [window.printed, Page.isDark(), Page.css('--page')];") == [[0, 0, 700], True, "#14181c"]
