"""The section of sweeps: every point counts, the front is whole, and a page of many points stays small."""

from tests.report.samples import HOSTILE, record
from tilepress.report import render_page, sections

COMMAND = "tilepress sweep grid.toml -o out"


def swept(number, cost, loss, study="simulate deca", **labels):
    given = {"study": study, "weights": "mxfp4", "width": number, **labels, "point": f"{number:016x}"}
    return [
        record(COMMAND, "time", loss, "ms", given, origin="simulated"),
        record(COMMAND, "area", cost, "mm2", given, origin="model"),
        record(COMMAND, "power", 1.5, "W", given, origin="model"),
    ]


def section(records):
    [found] = [one for one in sections(records) if one.key == "sweeps"]
    return found


def test_the_front_is_filled_and_in_the_table():
    records = [*swept(1, 1.0, 9.0), *swept(2, 2.0, 5.0), *swept(3, 3.0, 7.0), *swept(4, 4.0, 2.0)]
    plot, table = section(records).blocks
    [trace] = plot.traces
    assert (trace["x"], trace["y"]) == ([1.0, 2.0, 3.0, 4.0], [9.0, 5.0, 7.0, 2.0])
    assert trace["marker"]["symbol"] == ["circle", "circle", "circle-open", "circle"]
    assert table.columns == ["width", "time, ms", "area, mm²", "power, W"]
    assert table.rows == [["1", 9.0, 1.0, 1.5], ["2", 5.0, 2.0, 1.5], ["4", 2.0, 4.0, 1.5]]
    assert {one.key for one in sections(records)} == {"summary", "sweeps"}


def test_subjects_and_studies_are_apart():
    records = [*swept(1, 1.0, 9.0), *swept(2, 2.0, 9.5, weights="bf8")]
    records += [record(COMMAND, metric, 3.0, "", {"study": "compress", "model": "m", "point": "a"})
                for metric in ("size", "perplexity")]  # fmt: skip
    found = section(records)
    assert [block.title for block in found.blocks] == [
        "Perplexity by size", "The Pareto front: compress", "Time by area", "The Pareto front: simulate deca",
    ]  # fmt: skip
    assert [trace["name"] for trace in found.blocks[2].traces] == ["weights mxfp4", "weights bf8"]
    assert len(found.blocks[3].rows) == 2


def test_records_of_another_kind_are_with_the_others():
    records = [record(COMMAND, "time", 1.0, "ms", {"study": "of somebody else", "point": "a"})]
    assert [one.key for one in sections(records)] == ["summary", "rest"]


def test_many_points_make_a_small_page():
    records = [one for number in range(10_000) for one in swept(number, 1.0 + number, 1e5 / (1 + number % 100))]
    found = section(records)
    plot = found.blocks[0]
    assert plot.note == "One of 5 points is drawn, and the whole front." and len(plot.traces[0]["x"]) < 2200
    page = render_page("Sweep", "", sections(records), COMMAND, with_explorer=False)
    assert len(page.encode()) < 2_000_000


def test_names_are_not_taken_for_html():
    records = [*swept(1, 1.0, 2.0, weights=HOSTILE), *swept(2, 2.0, 1.0)]
    page = render_page("Sweep", "", sections(records), COMMAND, with_explorer=False)
    assert "<img src=x" not in page and "<script>window.hacked" not in page
