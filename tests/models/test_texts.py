"""Texts by name or path, and what is said where there is none."""

import pytest

from tilepress.models import texts
from tilepress.models.texts import TextUnavailableError, calibration_text, data_file, evaluation_text, read_text


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """(the folder of TILEPRESS_DATA, the folder in the cache), both empty."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    (cache / "data").mkdir(parents=True)
    monkeypatch.setenv("TILEPRESS_DATA", str(data))
    monkeypatch.setenv("TILEPRESS_CACHE", str(cache))
    return data, cache / "data"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_is_read_as_it_is_but_for_the_ends_of_lines(tmp_path, end):
    (tmp_path / "text").write_bytes(f" a{end}{end}\u2009é {end}".encode())
    assert read_text(str(tmp_path / "text")) == " a\n\n\u2009é \n"


@pytest.mark.parametrize("name", texts.FILES)
def test_a_named_text_is_found_in_the_data_folder_first_then_in_the_cache(name, folders, monkeypatch):
    for folder in reversed(folders):
        (folder / texts.FILES[name]).write_text(str(folder))
        assert read_text(name) == str(folder)
    monkeypatch.delenv("TILEPRESS_DATA")
    assert read_text(name) == str(folders[1])


def test_a_name_wins_over_a_file_called_like_it(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ptb").write_text("a file")
    (folders[0] / "ptb-valid.txt").write_text("the text")
    assert read_text("ptb") == "the text" and read_text("./ptb") == "a file"


def test_a_text_that_is_missing_is_named_with_the_places_and_the_way_out(folders):
    with pytest.raises(TextUnavailableError) as refused:
        read_text("wikitext2")
    assert str(refused.value) == (
        f"wikitext2-test.txt is not in {folders[0]} nor in {folders[1]}; put it there, "
        "name its folder in TILEPRESS_DATA, or give the path of another file"
    )
    with pytest.raises(TextUnavailableError, match=r"piqa-valid\.jsonl is not in"):
        data_file("piqa-valid.jsonl")


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "is empty"), (b" \n\t", "is empty"), (b"ab\xff", r"not text in UTF-8 \(byte 2")]
)
def test_a_file_without_text_is_refused(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(TextUnavailableError, match=message):
        read_text(str(tmp_path / "file"))


def test_what_is_no_file_is_refused_with_what_there_is(tmp_path):
    with pytest.raises(TextUnavailableError, match="no file wikitex2: did you mean 'wikitext2'"):
        read_text("wikitex2")
    with pytest.raises(TextUnavailableError, match="give a text file or one of wikitext2, wikitext2-train, ptb, pydoc"):
        read_text(str(tmp_path / "nowhere"))
    with pytest.raises(TextUnavailableError, match="is a folder"):
        read_text(str(tmp_path))


def test_the_documentation_in_cpython_is_long_and_always_the_same(monkeypatch):
    from pydoc_data.topics import topics

    text = read_text("pydoc")
    assert len(text) > 300_000 and topics["assert"] in text
    monkeypatch.setattr("pydoc_data.topics.topics", dict(reversed(topics.items())))
    assert read_text("pydoc") == text


@pytest.mark.parametrize(("choose", "name"), [(calibration_text, "wikitext2-train"), (evaluation_text, "wikitext2")])
def test_the_text_to_use_falls_back_step_by_step(folders, tmp_path, choose, name):
    assert choose(None) == ("pydoc", read_text("pydoc"))
    (folders[0] / texts.FILES[name]).write_text("some text")
    assert choose(None) == (name, "some text")
    (tmp_path / "mine").write_text("my own")
    assert choose(str(tmp_path / "mine")) == (str(tmp_path / "mine"), "my own")
    with pytest.raises(TextUnavailableError, match="no file"):
        choose(str(tmp_path / "nowhere"))
