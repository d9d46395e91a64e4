import csv
import io
import re

from tilepress.report import markdown_report, sections, write_csv

from . import samples


def test_markdown_has_every_table_and_its_command():
    text = markdown_report("Title", sections(samples.everything()))
    assert text.startswith("# Title\n") and "## Quality" in text
    assert "| int4 | 20.5 ± 0.5 | 0.3125 | 15.25 |" in text
    assert "| anda/table3 | MXU | area | mm2 | 0.4 | 0.5 | +25.0 % | deviates | fitted |" in text
    assert "    tilepress bench model int4 --json" in text


def test_markdown_takes_no_record_for_markup():
    text = markdown_report("Title", sections(samples.hostile()))
    assert "<img" not in text.replace("\\<img", "").replace(f"    {samples.HOSTILE}", "")
    lines = text.splitlines()
    hostile = [index for index, line in enumerate(lines) if line.startswith("| ") and "img" in line]
    assert len(hostile) == 4
    for index in hostile:
        rule = next(line for line in reversed(lines[:index]) if line.startswith("| ---"))
        assert len(re.findall(r"(?<!\\)\|", lines[index])) == rule.count("|")


def test_csv_keeps_all_digits_and_errors_apart(tmp_path):
    written = write_csv(tmp_path / "tables", sections(samples.everything()))
    assert written == [path for path in written if path.exists()] and len(set(written)) == len(written)
    assert not list((tmp_path / "tables").glob("*.part"))
    quality = next(path for path in written if path.name == "quality-quality-on-wikitext2.csv")
    head, first, *_ = csv.reader(io.StringIO(quality.read_text("utf-8")))
    assert head[:3] == ["model", "perplexity", "perplexity, error"] and first[:3] == ["int4", "20.5", "0.5"]
    compared = next(path for path in written if path.name.startswith("papers"))
    rows = list(csv.DictReader(io.StringIO(compared.read_text("utf-8"))))
    assert len(rows) == len(samples.reproductions()) and rows[-1]["ours"] == str(64 / 36)
    rest = [path for path in written if path.name.startswith("rest")]
    shown = {row["metric"] for path in rest for row in csv.DictReader(io.StringIO(path.read_text("utf-8")))}
    assert samples.HOSTILE in shown
