"""Plots: what they show, and that a page needs nothing else."""

from tilepress.compression.search import search
from tilepress.records import Reproduction
from tilepress.report import Series, item_charts, line_chart, write_page
from tilepress.report.precision import trace_charts


def test_a_page_holds_every_figure_and_its_script_once(tmp_path):
    figures = [line_chart(f"title {n}", "x", "y", [Series("line", [1, 2], [3.0, None])]) for n in (1, 2)]
    write_page(tmp_path / "page.html", "a <b> page", figures)
    page = (tmp_path / "page.html").read_text()
    assert "title 1" in page and "title 2" in page and "<title>a &lt;b&gt; page</title>" in page
    assert 'src="http' not in page and not list(tmp_path.glob("*.part"))
    figures[0].update_layout(title="other")
    write_page(tmp_path / "half.html", "one", figures[:1])
    assert (tmp_path / "half.html").stat().st_size > 0.9 * len(page.encode())


def test_the_trace_of_a_search():
    outcome = search(lambda m: 1.0 if m is None or min(m) >= 6 else 2.0, (3, 1, 4, 4), 0.01)
    cost, loss = trace_charts(outcome, (3, 1, 4, 4))
    tried, best = cost.data
    assert list(tried.x) == [step.number for step in outcome.steps] and tried.y[0] == 25
    assert best.y[0] is None and best.y[-1] == 100 * 6 / 16
    assert "[6, 6, 6, 6]: 37.5 % of FP16's bit operations" in cost.layout.title.text
    assert list(loss.data[1].y) == [1.0] * len(outcome.steps)
    assert tried.marker.symbol[2] == "circle" and tried.marker.symbol[0] == "circle-open"


def test_losses_beyond_use_do_not_flatten_the_others():
    def chart(values):
        cells = [("a/b", "row", f"m{n}", None, None, None, None) for n in range(len(values))]
        pairs = zip(values, cells, strict=True)
        records = [Reproduction("reproduction", {}, value, "%", "measured", "", "", *cell) for value, cell in pairs]
        (one,) = item_charts("title", records)
        return one

    assert chart([90.0, 3.0, -1.0]).layout.yaxis.range is None
    low, high = chart([90000.0, 3.0, -1.0]).layout.yaxis.range
    assert low < -1 and high == 20
    assert "more than 20 % lies above" in chart([90000.0, 3.0, -1.0]).layout.title.text
