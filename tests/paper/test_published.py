"""Files of published values: what they stand for, and what is wrong with them in words."""

import pytest

from tilepress.paper import registry
from tilepress.paper.item import Published
from tilepress.paper.published import PublishedError, read_paper

TABLE = """
items:
  table1:
    - place: table 1
      unit: ms
      follows: table 6
      columns: {time: {}, share: {unit: "%"}, saved: {unit: "%", quantity: saving}, word: {unit: "", relation: "="}}
      rows:
        first: [2, 97.5, 54, fast]
        second: [100.0, null, null, "[7, 7]"]
        none: [0, null, null, null]
inputs:
  sizes:
    - {place: section 1, relation: ">", columns: [bytes], rows: {cache: [64]}}
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "published.yaml").write_text(text)
        return tmp_path

    yield write
    read_paper.cache_clear()


def test_cells_of_a_table(written):
    paper = read_paper(written(TABLE))
    assert paper.items["table1"] == [
        Published("first", "time", 2, "ms", "table 1", "ratio", "=", "table 6"),
        Published("first", "share", 97.5, "%", "table 1", "share", "=", "table 6"),
        Published("first", "saved", 54, "%", "table 1", "saving", "=", "table 6"),
        Published("first", "word", "fast", "", "table 1", "ratio", "=", "table 6"),
        Published("second", "time", 100.0, "ms", "table 1", "ratio", "=", "table 6"),
        Published("second", "word", "[7, 7]", "", "table 1", "ratio", "=", "table 6"),
        Published("none", "time", 0, "ms", "table 1", "ratio", "=", "table 6"),
    ]
    assert paper.inputs["sizes"] == [Published("cache", "bytes", 64, "", "section 1", relation=">")]


def test_values_keep_their_types(written):
    paper = read_paper(written(TABLE))
    assert paper.values("sizes") == {("cache", "bytes"): 64}
    assert {cell: type(value) for cell, value in paper.values("table1").items()} == {
        ("first", "time"): int,
        ("first", "share"): float,
        ("first", "saved"): int,
        ("first", "word"): str,
        ("second", "time"): float,
        ("second", "word"): str,
        ("none", "time"): int,
    }


def test_an_item_has_the_papers_name(written):
    folder = written(TABLE)
    item = read_paper(folder).item("table1", "a table", "exact", lambda track: [])
    assert item.name == f"{folder.name}/table1" and len(item.published) == 7
    with pytest.raises(KeyError, match="table9"):
        read_paper(folder).item("table9", "no table", "exact", lambda track: [])


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("[2, 97.5, 54, fast]", "[2, 97.5]", r"items.table1.0: row 'first' has 2 values for 4 columns"),
        ("[2, 97.5, 54, fast]", "[2, yes, 54, fast]", r"items.table1.0.rows.first.1"),
        (
            "place: table 1",
            "where: table 1",
            r"items.table1.0.place: is missing; items.table1.0.where: there is no such",
        ),
        ("place: table 1", 'place: ""', r"items.table1.0.place: String should have at least 1 character"),
        ("quantity: saving", "quantity: savings", r"items.table1.0.columns.saved.quantity: Input should be 'ratio'"),
        ('relation: "="', 'relation: "!"', r"items.table1.0.columns.word.relation: Input should be '=', '<' or '>'"),
        ("rows:\n        first", "rows: [\n        first", "is not YAML"),
        (TABLE, "items", "the file: Input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_is_named(written, old, new, message):
    with pytest.raises(PublishedError, match=message):
        read_paper(written(TABLE.replace(old, new)))


def test_no_file(tmp_path):
    with pytest.raises(PublishedError, match=r"published.yaml cannot be read: No such file"):
        read_paper(tmp_path)


def test_every_published_item_has_an_experiment():
    items = registry.items()
    for paper in dict.fromkeys(item.paper for item in items):
        assert set(read_paper(paper).items) <= {item.name.partition("/")[2] for item in items if item.paper == paper}
