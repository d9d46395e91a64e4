"""Folders whose config describes more than their files hold, or that reach out of themselves."""

import json
import shutil
import struct

import pytest
from tests.attacks.measuring import MB, bounded
from tests.models import tiny

from tilepress._safetensors import INDEX, SINGLE
from tilepress.models import compress_folder, load_model
from tilepress.models.checksums import digests_of, read_sums, write_sums
from tilepress.models.config_limits import check_config
from tilepress.models.embedded import ModelUnavailableError
from tilepress.models.shards import Shards
from tilepress.tiles import DamagedError

INT8 = {"weights": {"format": "int8:row"}}


def size_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture(scope="module", params=["as it came", "compressed"])
def whole(request, tmp_path_factory):
    folder, _ = tiny.save(tmp_path_factory.mktemp("whole") / "model")
    if request.param == "compressed":
        compress_folder(str(folder), folder.parent / "out", INT8)
        folder = folder.parent / "out"
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def write_config(folder, text):
    """With the checksum that an attacker would give it."""
    (folder / "config.json").write_text(text)
    if listed := read_sums(folder):
        write_sums(folder, digests_of(folder, listed))


def change_config(folder, change):
    stated = json.loads((folder / "config.json").read_text())
    write_config(folder, json.dumps(stated | change))


# Which of these is found first depends on whether the embedding is packed.
TOO_WIDE = (
    r"describes .* million weights beside packed ones, and the files hold|holds weights of other shapes than its config"
    r"|model\.embed_tokens is damaged: it is 96×64, not 100000000×64"
)
TOO_LARGE = [
    ({"num_hidden_layers": 10**9}, r"config\.json says num_hidden_layers: 1000000000, and no model has so many"),
    ({"num_hidden_layers": 9000}, "describes more than .* tensors, twice what the files hold"),
    ({"vocab_size": 10**8}, TOO_WIDE),
    ({"hidden_size": 10**6}, TOO_WIDE),
    ({"text_config": {"n_layer": 1e12}}, r"says n_layer: 1000000000000\.0, and no model has so many"),
]


@pytest.mark.parametrize(("change", "message"), TOO_LARGE)
def test_a_config_that_describes_more_than_there_is(folder, change, message):
    change_config(folder, change)
    with bounded(size_of(folder)), pytest.raises((ModelUnavailableError, DamagedError), match=message):
        load_model(str(folder))


@pytest.mark.parametrize(("change", "message"), TOO_LARGE)
def test_such_a_config_is_not_compressed(tmp_path, change, message):
    folder, _ = tiny.save(tmp_path / "model")
    change_config(folder, change)
    with bounded(size_of(folder)), pytest.raises(ModelUnavailableError, match=message):
        compress_folder(str(folder), tmp_path / "out", INT8)
    assert not (tmp_path / "out").exists()


def test_constants_without_end(tmp_path):
    """Sines of every position that a model takes."""
    from transformers import CodeGenConfig, CodeGenForCausalLM

    sizes = {"vocab_size": 96, "n_embd": 32, "n_layer": 1, "n_head": 4, "rotary_dim": 4, "n_positions": 64}
    CodeGenForCausalLM(CodeGenConfig(**sizes)).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    change_config(tmp_path, {"n_positions": 10**8})
    with (
        bounded(size_of(tmp_path)),
        pytest.raises(ModelUnavailableError, match=r"1600 MB of constants that no file has"),
    ):
        load_model(str(tmp_path))


def test_a_config_that_is_too_large_to_parse(folder):
    write_config(folder, "[" + "[]," * MB + "0]")
    with bounded(3 * MB), pytest.raises(ModelUnavailableError, match=r"config\.json cannot be read: it is larger than"):
        load_model(str(folder))


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 900 + "]" * 900, '{"n_layer": ' + "9" * 5000 + "}", ""])
def test_no_config_makes_the_check_fail(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    try:
        check_config(tmp_path)
    except ModelUnavailableError as error:
        assert "config.json" in str(error)


def test_a_header_too_large_to_parse(tmp_path):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{number}": empty for number in range(40_000)}).encode()
    (tmp_path / SINGLE).write_bytes(struct.pack("<Q", len(header)) + header)
    with bounded(3 * MB), pytest.raises(ValueError, match="more than is read"):
        Shards(tmp_path)


@pytest.mark.parametrize("name", ["../outside.safetensors", "sub/x.safetensors", "/etc/outside.safetensors"])
def test_an_index_that_names_other_folders(tmp_path, name):
    folder, _ = tiny.save(tmp_path / "model")
    shutil.copy(folder / SINGLE, tmp_path / "outside.safetensors")
    names = Shards(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, name)}))
    (folder / SINGLE).unlink()
    for use in (lambda: load_model(str(folder)), lambda: compress_folder(str(folder), tmp_path / "out", INT8)):
        with pytest.raises((ValueError, ModelUnavailableError), match="which is not a file in that folder"):
            use()


# Links


def test_a_link_out_of_the_folder_is_not_copied(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    (tmp_path / "secret").write_text("hunter2")
    (folder / "vocab.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"vocab\.txt is a link out of the model's folder, to .*/secret"):
        compress_folder(str(folder), tmp_path / "out", INT8)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()


def test_a_link_within_the_folder_is_copied(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    (folder / "vocab.txt").symlink_to("tokenizer.json")
    compress_folder(str(folder), tmp_path / "out", INT8)
    assert (tmp_path / "out/vocab.txt").read_text() == (folder / "tokenizer.json").read_text()
    assert not (tmp_path / "out/vocab.txt").is_symlink()


def test_a_snapshot_of_the_hub_is_links_to_blobs(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    snapshot, blobs = tmp_path / "models--a--b/snapshots/1f", tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    compress_folder(str(snapshot), tmp_path / "out", INT8)
    assert (tmp_path / "out/tokenizer.json").read_text() == (snapshot / "tokenizer.json").read_text()


# GGUF files


def gguf(tensors, fields):
    """Metadata of `fields`: bytes of a type and a value."""
    named = b"".join(struct.pack("<Q", 2) + f"{n:02}".encode() + field for n, field in enumerate(fields))
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(fields)) + named


def array(type, length, entries):
    return struct.pack("<IIQ", 9, type, length) + entries


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gguf(0, [array(0, 1 << 60, b"")]), "its metadata has more than 213333 entries"),
        (gguf(0, [array(0, 200_000, b"\0")]), "it ends before its metadata does"),
        (gguf(0, [array(0, 3 * MB, b"\0" * 3 * MB)]), "its metadata has more than 233333 entries"),
        (gguf(0, [array(8, 9, struct.pack("<Q", 1 << 60))]), "it ends before its metadata does"),
        (gguf(0, [array(9, 1, array(0, 1 << 60, b"")[4:])]), "it has values of type 9, which are not read"),
        (gguf(1 << 60, []), "its metadata has more than 213333 entries"),
        (gguf(1000, []), "it ends before its metadata does"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "it ends before its metadata does"),
    ],
    ids=["array", "short array", "long array", "text", "arrays", "tensors", "short tensors", "fields"],
)
def test_a_gguf_file_with_entries_without_end(tmp_path, monkeypatch, content, message):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "x.gguf").write_bytes(content)
    with bounded(len(content)), pytest.raises(ModelUnavailableError, match=rf"is no whole GGUF file: {message}"):
        load_model(str(tmp_path / "x.gguf"))
