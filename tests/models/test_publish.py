"""Where a compressed folder goes: what it may replace, and what of the user's stays."""

import os
import shutil

import pytest

from tests.models.test_compress_to_folder import contents, no_room, stop_after
from tilepress.models import compress_folder, load_model, publish
from tilepress.models.loading import is_compressed
from tilepress.models.publish import OutputError


def test_a_place_that_cannot_be_taken(llama_folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    compress_folder(str(llama_folder[0]), out, {})
    with monkeypatch.context() as patch:
        patch.setattr(publish, "_take_place", no_room)
        with pytest.raises(
            OutputError, match=r"cannot take its place at .*out \(.*No space left.*untouched: mend that"
        ):
            compress_folder(str(llama_folder[0]), out, {"weights": {"format": "int8:row"}})
    compress_folder(str(llama_folder[0]), out, {"weights": {"format": "int8:row"}})
    assert os.listdir(tmp_path) == ["out"]
    monkeypatch.setattr("pathlib.Path.is_mount", lambda path: path == out)
    with pytest.raises(OutputError, match=r"out is a mount point, which cannot be replaced: give a folder in it"):
        compress_folder(str(llama_folder[0]), out, {})


def test_the_users_files_stay(llama_folder, tmp_path):
    out = tmp_path / "out"
    compress_folder(str(llama_folder[0]), out, {})
    (out / "results").mkdir()
    (out / "results/table.txt").write_text("years of work")
    (out / "notes.txt").write_text("more of it")
    compress_folder(str(llama_folder[0]), out, {"weights": {"format": "int8:row"}})
    assert (out / "results/table.txt").read_text() == "years of work" and (
        out / "notes.txt"
    ).read_text() == "more of it"
    assert "notes.txt" not in (out / "SHA256SUMS").read_text()
    load_model(str(out))


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "SHA256SUMS"])
def test_a_users_file_that_would_be_overwritten_is_refused(llama_folder, tmp_path, name):
    """Edited since, or put there where the list does not name it, or no longer known because the list is damaged."""
    out = tmp_path / "out"
    compress_folder(str(llama_folder[0]), out, {})
    if name.startswith("model"):
        lines = (out / "SHA256SUMS").read_text().splitlines(keepends=True)
        (out / "SHA256SUMS").write_text("".join(line for line in lines if name not in line))
    (out / name).write_text("mine")
    files = contents(out)
    with pytest.raises(OutputError, match=rf"{name} is not as tilepress wrote it.*move it away|which files .* move it"):
        compress_folder(str(llama_folder[0]), out, {}, progress=stop_after(0))
    assert contents(out) == files and os.listdir(tmp_path) == ["out"]


def test_a_folder_of_the_version_before_is_replaced(llama_folder, tmp_path):
    """It has no list: its companions are as good as the user's, which are the same."""
    out = tmp_path / "out"
    compress_folder(str(llama_folder[0]), out, {})
    (out / "SHA256SUMS").unlink()
    (out / "notes.txt").write_text("mine")
    compress_folder(str(llama_folder[0]), out, {"weights": {"format": "int8:row"}})
    assert (out / "notes.txt").exists() and load_model(str(out))
    (out / "SHA256SUMS").unlink()
    (out / "tokenizer.json").write_text("{}")
    with pytest.raises(OutputError, match=r"tokenizer.json is not as tilepress wrote it"):
        compress_folder(str(llama_folder[0]), out, {})


def test_an_output_that_is_a_link(llama_folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    compress_folder(str(llama_folder[0]), tmp_path / "out", {})
    assert (tmp_path / "out").is_symlink() and is_compressed(tmp_path / "disk")


def test_only_our_own_output_is_replaced(llama_folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    compress_folder(str(llama_folder[0]), out, {})  # empty: nothing to lose
    assert is_compressed(out)
    before = contents(out)
    compress_folder(str(llama_folder[0]), out, {"weights": {"format": "int8:row"}})
    assert contents(out) != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("too")
    for place in (tmp_path / "mine", tmp_path / "file", llama_folder[0]):
        with pytest.raises(OutputError, match=r"exists and is not a model that tilepress wrote: choose another output"):
            compress_folder(str(llama_folder[0]), place, {})
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"
    with pytest.raises(ValueError, match="out is compressed already: compress the model it was made from"):
        compress_folder(str(out), tmp_path / "again", {})


def test_outputs_that_cannot_be_are_refused(llama_folder, tmp_path):
    folder = shutil.copytree(llama_folder[0], tmp_path / "model")
    with pytest.raises(OutputError, match=r"lie one in the other: choose another output"):
        compress_folder(str(folder), folder / "out", {})
    compress_folder(str(folder), tmp_path / "out", {})
    inner = shutil.move(folder, tmp_path / "out" / "model")
    with pytest.raises(OutputError, match=r"lie one in the other"):  # to replace `out` would be to lose the model
        compress_folder(str(inner), tmp_path / "out", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/x.partial cannot be made \(.*\): choose another output"):
        compress_folder(str(llama_folder[0]), tmp_path / "file" / "x", {})
