"""Files that appear whole or not at all: modes, what a kill leaves behind, what a failure leaves behind."""

import os
import stat
import subprocess
import sys

import pytest
import torch

from tests.models import tiny
from tilepress import kv_cache, tiles
from tilepress._files import apply_umask, replacing, workspace, write_text

KILLED = """
import os, signal, sys
from tilepress._files import replacing
with replacing(sys.argv[1]) as made:
    made.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o027, 0o002])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def save_tiles(path):
    tiles.save(path, {"a": tiles.pack(torch.ones(16, 32), "int8:g32")})


def save_cache(path):
    model = tiny.make("llama", head_dim=32)
    cache = kv_cache(model, "bfp4")
    model(tiny.windows(1, 8), past_key_values=cache)
    cache.save(path)


@pytest.mark.parametrize("write", [save_tiles, save_cache, lambda path: write_text(path, "x")])
def test_the_umask_decides_who_may_read(tmp_path, umask, write):
    write(tmp_path / "file")
    assert mode(tmp_path / "file") == 0o666 & ~umask
    os.chmod(tmp_path / "file", 0o600)  # what somebody has made private stays so
    write(tmp_path / "file")
    assert mode(tmp_path / "file") == 0o600 and os.listdir(tmp_path) == ["file"]


def test_a_folder_of_private_files_is_opened(tmp_path, umask):
    (tmp_path / "a").touch(mode=0o600)
    (tmp_path / "link").symlink_to("nowhere")
    apply_umask(tmp_path)
    assert mode(tmp_path / "a") == 0o666 & ~umask and sorted(os.listdir(tmp_path)) == ["a", "link"]


def test_what_a_killed_process_left_is_swept_by_the_next(tmp_path):
    path = tmp_path / "x[1].txt"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True)
    assert done.returncode == -9 and path.read_text() == "old" and len(os.listdir(tmp_path)) == 2
    write_text(tmp_path / "other", "does not concern it")
    assert len(os.listdir(tmp_path)) == 3
    write_text(path, "new")
    assert path.read_text() == "new" and sorted(os.listdir(tmp_path)) == ["other", "x[1].txt"]


def test_what_a_living_process_writes_is_not_swept(tmp_path):
    with workspace(tmp_path / "x") as first, workspace(tmp_path / "x") as second:
        write_text(tmp_path / "x", "third")
        assert first.is_dir() and second.is_dir() and first != second
    assert os.listdir(tmp_path) == ["x"]


def test_what_only_looks_like_ours_is_not_swept(tmp_path):
    (tmp_path / ".x.mine.part").mkdir()
    (tmp_path / ".x.12345678.part").write_text("a file")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/thesis").touch()
    (tmp_path / ".x.abcdefgh.part").symlink_to("elsewhere")
    write_text(tmp_path / "x", "")
    assert len(os.listdir(tmp_path)) == 5 and (tmp_path / "elsewhere/thesis").exists()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "x").write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "x") as made:
        made.write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "x").read_text() == "old" and os.listdir(tmp_path) == ["x"]


def test_a_place_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere/x'"):
        write_text(tmp_path / "nowhere/x", "")
