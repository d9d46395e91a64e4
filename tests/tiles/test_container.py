"""The file: what is written is what is read, and nothing that was damaged or forged gets through.

Many random damages and forgeries: see tests/attacks/test_fuzz.py.
"""

import hashlib
import json
import os
import random

import pytest
import torch
from safetensors.torch import save_file

from tests.tiles.cases import assert_same_bytes, matrix, table_format
from tilepress import tiles
from tilepress.tiles import DamagedError, container, sealed


def some_matrices():
    weight = matrix(20, 70, density=0.5)
    return {
        "model.layers.0.q": tiles.pack(weight, "uint4:g32", sparse=True),
        "k": tiles.pack(weight, "mxfp4"),
        "table": tiles.pack(weight, table_format(3), sparse=True),
        "bf16": tiles.pack(weight, "bf16", sparse=True),
    }


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "packed.safetensors"
    tiles.save(path, some_matrices())
    return path


def test_round_trip(path):
    loaded = tiles.load(path)
    assert list(loaded) == list(some_matrices())
    for name, packed in some_matrices().items():
        assert loaded[name].format == packed.format
        assert_same_bytes(loaded[name], packed)
        assert torch.equal(tiles.unpack(loaded[name]), tiles.unpack(packed))


def test_some_matrices_can_be_loaded_alone(path):
    assert list(tiles.load(path, ["k"])) == ["k"]
    with pytest.raises(ValueError, match=r"holds no matrix 'v'; it holds model\.layers\.0\.q, k, table, bf16"):
        tiles.load(path, ["v"])


def test_a_table_comes_from_the_file_itself(path):
    """The name of a look-up format is only a label here: no file is opened, whatever a forged name says."""
    assert str(tiles.load(path)["table"].format) == "lut3:test:g32"
    assert tiles.load(path)["table"].format.element == table_format(3).element


def test_the_header_says_what_is_inside(path):
    entry = tiles.read_header(path)["model.layers.0.q"]
    packed = some_matrices()["model.layers.0.q"]
    assert (entry.format, entry.shape, entry.operand_bits) == ("uint4:g32", (20, 70), 8)
    assert entry.density == packed.density
    assert entry.sha256["codes"] == hashlib.sha256(packed.codes.numpy().data).hexdigest()


def test_the_same_matrices_give_the_same_file(path, tmp_path):
    tiles.save(tmp_path / "again.safetensors", some_matrices())
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_failed_save_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sealed, "_seal", disk_full)
    with pytest.raises(OSError, match="No space left"):
        tiles.save(path, some_matrices())
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_nothing_to_save(tmp_path):
    with pytest.raises(ValueError, match="no matrix to save"):
        tiles.save(tmp_path / "empty.safetensors", {})
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tiles.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "not a safetensors file"), (b"hello", "not a safetensors file"), (b"\xff" * 4096, "not a safetensors file")],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(DamagedError, match=message):
        tiles.load(tmp_path / "other")


def test_other_safetensors_are_refused(tmp_path):
    save_file({"weight": torch.zeros(4)}, tmp_path / "other")
    with pytest.raises(DamagedError, match="but not one of tilepress"):
        tiles.load(tmp_path / "other")


def test_every_truncation_is_refused(path):
    whole = path.read_bytes()
    for length in [*range(0, 64), *random.Random(0).sample(range(64, len(whole)), 300), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedError):
            tiles.load(path)


def forge(path, matrices, arrays, edit) -> None:
    """A file whose checksums are right whatever it holds: what an attacker would write."""
    described = {name: container.describe(matrix) for name, matrix in matrices.items()}
    header = {"version": container.VERSION, "digest": "0" * 64, "matrices": described}
    for key, array in arrays.items():
        name, _, part = key.rpartition(".")
        header["matrices"][name]["sha256"][part] = sealed.sha256(array)
    edit(header)
    save_file(arrays, path, {"tilepress": json.dumps(header)})
    sealed._seal(path)


def forged(path, edit_arrays=lambda arrays: None, edit_header=lambda header: None):
    matrices = some_matrices()
    arrays = {f"{name}.{part}": a.clone() for name, m in matrices.items() for part, a in m.streams.items()}
    edit_arrays(arrays)
    forge(path, matrices, arrays, edit_header)


def test_forging_without_an_edit_gives_a_good_file(path):
    forged(path)
    assert_same_bytes(tiles.load(path)["k"], some_matrices()["k"])


def set_in(key, value):
    def edit(header):
        header["matrices"]["table"][key] = value

    return edit


def set_value(key, index, value):
    def edit(arrays):
        arrays[key].view(-1)[index] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (set_value("bf16.offsets", 1, 10**12), "start at 0 and never descend"),
        (set_value("bf16.offsets", 1, -8), "start at 0 and never descend"),
        (set_value("bf16.offsets", 2, 10**12), "bf16 is damaged: codes must be"),
        (set_value("bf16.mask", 0, 255), "mask and offsets disagree"),
        (set_value("model.layers.0.q.zeros", 0, 3), "zero points of a sparse uint4:g32 matrix must be whole"),
        (lambda arrays: arrays.update({"bf16.codes": arrays["bf16.codes"][:100].clone()}), "codes must be"),
        (lambda arrays: arrays.update({"k.scales": arrays["k.scales"][:1].clone()}), "scales must be"),
        (lambda arrays: arrays.update({"k.zeros": torch.zeros(1, dtype=torch.uint8)}), "zeros must not be there"),
    ],
)
def test_forged_arrays_are_refused(path, edit, message):
    forged(path, edit_arrays=edit)
    with pytest.raises(DamagedError, match=message):
        tiles.load(path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda h: h.update(version=1), "has version 1; this tilepress reads version 2"),
        (lambda h: h.pop("version"), "has version None"),
        (lambda h: h.pop("matrices"), "header cannot be understood"),
        (lambda h: h.update(matrices=[1, 2]), "header cannot be understood"),
        (set_in("shape", [10**18, 10**18]), "table is damaged: mask must be"),
        (set_in("shape", [0, 0]), "empty matrix"),
        (set_in("shape", [20.0, 70]), "must be integers"),
        (set_in("shape", [20]), "header cannot be understood"),
        (set_in("operand_bits", 64), "8 or 16 bits, not 64"),
        (set_in("operand_bits", 8), "table is damaged"),
        (set_in("format", "int9:g32"), "did you mean 'int8:g32'"),
        (set_in("format", "int8:g32"), "table is damaged"),
        (set_in("format", "bfp:g32:m8"), "a format of activations"),
        (set_in("format", "lut3:/etc/passwd:g16"), "table is damaged: mask|scales must be"),
        (set_in("table", []), "3-bit codes reach 1 to 8 values, not 0"),
        (set_in("table", [float("nan")]), "must be finite"),
        (set_in("table", ["x"]), "header cannot be understood"),
        (set_in("density", 0.25), "density .* not 0.25 as stated"),
        (set_in("sha256", {}), "disagree about table"),
        (lambda h: h["matrices"].pop("k"), "the header and the arrays disagree about k.codes"),
        (lambda h: h["matrices"]["k"]["sha256"].update(codes="00"), "checksum does not match"),
    ],
)
def test_forged_headers_are_refused(path, edit, message):
    forged(path, edit_header=edit)
    with pytest.raises(DamagedError, match=message):
        tiles.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "[" * 100_000, "null"])
def test_headers_that_are_no_object_are_refused(tmp_path, text):
    save_file({"a": torch.zeros(1)}, tmp_path / "x", {"tilepress": text})
    with pytest.raises(DamagedError, match="header is not"):
        tiles.load(tmp_path / "x")
