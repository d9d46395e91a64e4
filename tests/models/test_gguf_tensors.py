"""Weights read from a GGUF file one by one: the same bytes as through a folder in float32."""

import filecmp
import os
import shutil

import numpy as np
import pytest
import torch

from tests.models import tiny
from tests.models.gguf_files import WIDTH, write_gguf
from tilepress.models import ModelUnavailableError, compress_folder, load_model, model_folder
from tilepress.models.gguf import folder as gguf_folders
from tilepress.models.gguf.limits import read_header
from tilepress.models.gguf.tensors import LINK, open_weights

pytest.importorskip("gguf")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows

TYPES = {
    "attn_q": "Q8_0",
    "attn_k": "Q4_1",
    "ffn_down": "Q5_0",
    "ffn_up": "F16",
    "attn_v": "BF16",
    "token_embd": "Q4_0",
}
TYPES |= {"ffn_gate_exps": "Q8_0", "ffn_up_exps": "Q4_1", "ffn_down_exps": "F16"}
RECIPE = {"weights": {"format": "int8:g32"}}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def silent(_):
    pass


def unpacked(path, folder):
    """What transformers itself makes of the file, in float32."""
    source = folder.parent / "alone" / "x.gguf"
    source.parent.mkdir()
    shutil.copyfile(path, source)
    gguf_folders._unpack(path.name, source, folder)
    return folder


def same_files(one, other):
    names = sorted(os.listdir(one))
    assert names == sorted(os.listdir(other))
    return filecmp.cmpfiles(one, other, names, shallow=False)[1:] == ([], [])


@pytest.fixture(params=[("llama", True), ("llama", False), ("qwen3moe", False)], ids=lambda one: f"{one[0]}-{one[1]}")
def toy(request, tmp_path, cache):
    architecture, tied = request.param
    write_gguf(tmp_path / "toy.gguf", architecture, blocks=2, tied=tied, types=TYPES)
    return tmp_path / "toy.gguf"


def test_the_packed_folder_has_the_same_bytes(toy, tmp_path):
    """Under one name, since the model card and config.json say what was compressed."""
    old = unpacked(toy, tmp_path / "model")
    compress_folder(str(old), tmp_path / "theirs", RECIPE, announce=silent)
    shutil.rmtree(old)
    old.mkdir()
    for path in model_folder(str(toy), silent).iterdir():
        shutil.copyfile(path, old / path.name)
    compress_folder(str(old), tmp_path / "ours", RECIPE, announce=silent)
    (ours, theirs) = tmp_path / "ours", tmp_path / "theirs"
    assert_but_for_size(ours / "README.md", theirs / "README.md")
    for folder in (ours, theirs):
        (folder / "README.md").unlink()
    assert same_files(ours, theirs)


def assert_but_for_size(one, other):
    """The card of the other says how large its safetensors file was, table of contents and all."""
    lines = [
        [line for line in path.read_text().splitlines() if "MB of weights" not in line and "<!--" not in line]
        for path in (one, other)
    ]
    assert lines[0] == lines[1]


def test_the_model_is_the_same(toy, tmp_path):
    ours, theirs = load_model(str(toy), announce=silent), load_model(str(unpacked(toy, tmp_path / "model")))
    state = theirs.model.state_dict()
    assert ours.model.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.model.state_dict().items())
    assert ours.model.generation_config.to_dict() == theirs.model.generation_config.to_dict()
    tokens = torch.tensor([[1, 3, 5, 7]])
    with torch.inference_mode():
        assert torch.equal(ours.model(tokens).logits, theirs.model(tokens).logits)
    assert load_model(str(toy), dtype=torch.bfloat16, announce=silent).model.dtype == torch.bfloat16


def test_nothing_of_the_weights_is_written(toy, cache):
    model_folder(str(toy), silent)
    (folder,) = cache.iterdir()
    assert (folder / LINK).resolve() == toy
    assert sum(path.stat().st_size for path in folder.iterdir() if not path.is_symlink()) < 10_000


def test_one_expert_is_read_alone(tmp_path, cache):
    write_gguf(tmp_path / "toy.gguf", "qwen3moe", types=TYPES)
    shards = open_weights(model_folder(str(tmp_path / "toy.gguf"), silent))
    name = "model.layers.0.mlp.experts.gate_up_proj"
    assert shards.shapes[name] == (4, 2 * WIDTH, 32) and torch.equal(shards.part(name, 2), shards[name][2])
    assert torch.equal(shards.part("lm_head.weight", 3), shards["lm_head.weight"][3])


def test_parts_of_a_split_file(tmp_path, cache):
    weights = write_gguf(tmp_path / "toy.gguf", blocks=2, split_max_tensors=6)
    first = sorted(tmp_path.glob("toy-*.gguf"))[0]
    shards = open_weights(model_folder(str(first), silent))
    assert np.array_equal(shards["lm_head.weight"].numpy(), weights["output"])


def test_a_file_that_changes_after_it_was_opened(tmp_path, cache):
    path = tmp_path / "toy.gguf"
    write_gguf(path)
    shards = open_weights(model_folder(str(path), silent))
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ModelUnavailableError, match=r"toy\.gguf ends within .*: fetch the file again"):
        [shards[name] for name in shards]


def header_with(path, name, change):
    """The file with the description of a tensor, which follows its name, changed."""
    content = path.read_bytes()
    at = content.index(name) + len(name)
    path.write_bytes(content[:at] + change(content[at : at + 32]) + content[at + 32 :])


CHANGES = {
    "an offset beyond the end": (lambda said: said[:24] + b"\xff" * 7 + b"\0", "ends before its tensor"),
    "a type that there is not": (lambda said: said[:20] + b"\xfe\0\0\0" + said[24:], "cannot be read: 254 is not"),
    "rows of half a block": (lambda said: said[:4] + b"\x11" + said[5:], "no whole blocks of 32"),
    "other rows than the model has": (lambda said: said[:12] + b"\x10" + said[13:], r"up_proj.weight is \[16, 32\] in"),
    "no dimensions": (lambda said: b"\0" + said[1:], "a tensor of 0 dimensions"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_table_of_tensors_that_is_wrong(tmp_path, cache, kind):
    """In a folder of ours whose file was exchanged, so that nothing has looked at it before."""
    change, text = CHANGES[kind]
    path = tmp_path / "toy.gguf"
    write_gguf(path, types={"ffn_up": "Q8_0"})
    folder = model_folder(str(path), silent)
    header_with(path, b"blk.0.ffn_up.weight", change)
    with pytest.raises(ModelUnavailableError, match=text) as error:
        load_model(str(folder))
    assert "\n" not in str(error.value)
    with pytest.raises(ModelUnavailableError):
        compress_folder(str(folder), tmp_path / "out", RECIPE, announce=silent)
    assert not (tmp_path / "out").exists()


def test_a_config_of_another_kind(tmp_path, cache):
    """In a stranger's folder that has a GGUF file under the name of our link."""
    folder, _ = tiny.save(tmp_path / "model", "opt")
    (folder / "model.safetensors").unlink()
    write_gguf(folder / LINK)
    with pytest.raises(
        ModelUnavailableError, match=r"model\.gguf does not fit the config.json that leads to it: "
    ) as error:
        load_model(str(folder))
    assert "\n" not in str(error.value)


def test_the_alignment_of_a_file_is_its_own(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "toy.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    writer.add_tensor("one", np.arange(8, dtype=np.float32))
    writer.add_tensor("two", np.ones(8, np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    header = read_header(path)
    assert header.start % 256 == 0 and header.tensors["two"].offset == 256
    assert np.array_equal(np.fromfile(path, np.float32, 8, offset=header.start), np.arange(8))
