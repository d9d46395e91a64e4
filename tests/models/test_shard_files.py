"""Blocks joined into larger files: what is in them, what a kill leaves, how much memory and disk it takes."""

import json
import os
import subprocess
import sys
import tracemalloc

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.test_compress_to_folder import contents, no_room
from tilepress._safetensors import DamagedError, read_arrays
from tilepress.models import compress_folder, disk_storage, load_model, shard_files
from tilepress.models.publish import OutputError
from tilepress.models.shard_files import join_files, plan_shards, shard_names

WIDTHS = {"I64": 8, "F32": 4, "BF16": 2, "U8": 1}
ONE_EACH = 1000  # bytes: no two blocks in one file


def arrays(seed):
    torch.manual_seed(seed)
    return {
        f"{seed}.bytes": torch.randint(0, 255, (13, 7), dtype=torch.uint8),
        f"{seed}.long": torch.randint(0, 1 << 40, (5,)),
        f"{seed}.half": torch.randn(3, 5).bfloat16(),
        f"{seed}.empty": torch.empty(0, 4),
        f"{seed}.float": torch.randn(9),
        f"{seed}.one": torch.tensor(1.5),
    }


def test_joined_files_hold_the_same_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_files, "PIECE", 11)
    sources = [tmp_path / f"{seed}.safetensors" for seed in range(3)]
    for seed, path in enumerate(sources):
        save_file(arrays(seed), path)
    join_files(sources, tmp_path / "all.safetensors")
    joined, expected = load_file(tmp_path / "all.safetensors"), arrays(0) | arrays(1) | arrays(2)
    assert joined.keys() == expected.keys() and all(torch.equal(joined[name], expected[name]) for name in expected)
    stored = read_arrays(tmp_path / "all.safetensors").values()
    assert all(one.begin % WIDTHS[one.type] == 0 for one in stored)


def test_memory_holds_a_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_files, "PIECE", 100_000)
    for name in "ab":
        save_file({name: torch.zeros(8_000_000, dtype=torch.uint8)}, tmp_path / f"{name}.safetensors")
    tracemalloc.start()
    join_files([tmp_path / "a.safetensors", tmp_path / "b.safetensors"], tmp_path / "joined.safetensors")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "joined.safetensors").stat().st_size > 16_000_000 and peak < 1_000_000


def test_a_source_that_is_cut_off_is_refused(tmp_path):
    save_file(arrays(0), tmp_path / "a.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(content[:-1])
    with pytest.raises(DamagedError, match=r"a.safetensors is not a whole safetensors file"):
        join_files([tmp_path / "a.safetensors"], tmp_path / "b.safetensors")
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_neighbours_go_together():
    assert plan_shards([3, 3, 3, 9, 1, 1], 6) == [[0, 1], [2], [3], [4, 5]]
    assert plan_shards([3, 3], 100) == [[0, 1]]
    assert shard_names(1) == ["model.safetensors"]
    assert shard_names(2) == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def test_a_model_in_several_files_is_the_same_model(llama_folder, tmp_path, recipe):
    one = compress_folder(str(llama_folder[0]), tmp_path / "one", recipe)
    many = compress_folder(str(llama_folder[0]), tmp_path / "many", recipe, shard_bytes=60_000)
    names = sorted(path.name for path in (tmp_path / "many").glob("*.safetensors"))
    assert names == shard_names(2) and all((tmp_path / "many" / name).stat().st_size <= 60_000 for name in names)
    index = json.loads((tmp_path / "many/model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == load_file(tmp_path / "one/model.safetensors").keys()
    a, b = (load_model(str(tmp_path / name)).model.state_dict() for name in ("one", "many"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    assert abs(many.nbytes - one.nbytes) < 500
    assert many.nbytes == sum((tmp_path / "many" / name).stat().st_size for name in names)
    compress_folder(str(llama_folder[0]), tmp_path / "many", recipe)  # in the place of one with more files
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


KILLED = """
import os, signal, sys
from tilepress.models import compress_folder, shard_files
copy, copies = shard_files._copy, []
def killed(*arguments):
    copies.append(1)
    if len(copies) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    copy(*arguments)
shard_files._copy = killed
compress_folder(sys.argv[1], sys.argv[2], {}, shard_bytes=60_000)
"""


@pytest.mark.parametrize("at", [1, 60])
def test_killed_while_files_are_joined(llama_folder, tmp_path, at, monkeypatch):
    """In the first file, and in the second, when the blocks of the first are deleted."""
    command = [sys.executable, "-c", KILLED, str(llama_folder[0]), str(tmp_path / "out"), str(at)]
    assert subprocess.run(command, capture_output=True).returncode == -9
    partial = tmp_path / "out.partial"
    assert len(list((partial / "finished").iterdir())) == 4 and not (tmp_path / "out").exists()
    left = {path.name for path in (partial / "blocks").iterdir()}
    assert len(left) == (4 if at == 1 else 2)
    finish = disk_storage.DiskStorage.finish
    stages = []
    monkeypatch.setattr(disk_storage.DiskStorage, "finish", lambda *all: stages.append(all[1]) or finish(*all))
    compress_folder(str(llama_folder[0]), tmp_path / "out", {}, shard_bytes=60_000)
    assert not stages and not partial.exists()
    compress_folder(str(llama_folder[0]), tmp_path / "whole", {}, shard_bytes=60_000)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_full_disc_while_files_are_joined(llama_folder, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shard_files, "_copy", no_room)
        with pytest.raises(OutputError, match=r"blocks cannot be joined in .*out.partial \(.*No space left.*make room"):
            compress_folder(str(llama_folder[0]), tmp_path / "out", {})
    compress_folder(str(llama_folder[0]), tmp_path / "out", {})
    assert load_model(str(tmp_path / "out"))


def test_the_disk_needs_room_for_the_model_and_one_file(llama_folder, tmp_path, monkeypatch):
    most, join = [], shard_files.join_files

    def spy(sources, target):
        join(sources, target)
        most.append(sum(path.stat().st_size for path in (tmp_path / "out.partial").rglob("*.safetensors")))

    monkeypatch.setattr(disk_storage, "join_files", spy)
    outcome = compress_folder(str(llama_folder[0]), tmp_path / "out", {}, shard_bytes=ONE_EACH)
    largest = max(path.stat().st_size for path in (tmp_path / "out").glob("*.safetensors"))
    assert len(most) == 4 and max(most) < outcome.nbytes + largest + 1000
