"""Compression from folder to folder: streamed, interrupted, resumed, refused."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from tests.models import tiny
from tilepress.models import ModelUnavailableError, compress_folder, compress_model, disk_storage, load_model, publish
from tilepress.models.blocks import linear_layers
from tilepress.models.compress_to_folder import read_windows
from tilepress.models.disk_storage import DiskStorage
from tilepress.models.publish import OutputError
from tilepress.models.recipe import read_recipe
from tilepress.models.registration import unpack_layers
from tilepress.models.shards import Shards
from tilepress.models.streaming import StreamedModel


class Stop(Exception):
    """An interrupt."""


def stop_after(stages):
    def progress(state):
        if state.done == stages:
            raise Stop

    return progress


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_streamed_model_is_the_one_compressed_in_memory(family, tmp_path, recipe):
    folder, _ = tiny.save(tmp_path / "model", family)
    outcome = compress_folder(str(folder), tmp_path / "out", recipe)
    windows = read_windows(read_recipe(recipe), AutoTokenizer.from_pretrained(folder))
    expected = compress_model(tiny.make(family), recipe, windows=windows)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    a, b = expected.state_dict(), loaded.state_dict()
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
    assert [layer.name for layer in outcome.layers] == list(expected.config.quantization_config.layers)
    assert outcome.nbytes < outcome.source_bytes and 2 < outcome.bits_per_weight < 5
    assert not (tmp_path / "out.partial").exists()


def test_what_the_folder_tells(llama_folder, tmp_path, recipe):
    compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    stated = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert stated["recipe"] == read_recipe(recipe).model_dump(mode="json")
    assert stated["versions"].keys() == {"tilepress", "torch", "transformers"}
    assert all(0 < layer["error"] < 1 for layer in stated["layers"].values())
    assert [path.name for path in (tmp_path / "out").glob("model*")] == ["model.safetensors"]
    assert "model.layers.0.self_attn.q_proj.codes" in load_file(tmp_path / "out/model.safetensors")
    assert AutoTokenizer.from_pretrained(tmp_path / "out").vocab_size == tiny.VOCABULARY
    assert load_model(str(tmp_path / "out")).model(tiny.windows()).logits.isfinite().all()


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
def test_interrupted_and_resumed_is_uninterrupted(llama_folder, tmp_path, recipe, stages):
    compress_folder(str(llama_folder[0]), tmp_path / "whole", recipe)
    with pytest.raises(Stop):
        compress_folder(str(llama_folder[0]), tmp_path / "out", recipe, progress=stop_after(stages))
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "out.partial/finished").iterdir())) == stages
    steps = []
    compress_folder(str(llama_folder[0]), tmp_path / "out", recipe, progress=steps.append)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


KILLED = """
import os, signal, sys
from tilepress.models import compress_folder, disk_storage
save = disk_storage.save_file
def save_file(tensors, path, metadata):
    save(tensors, path, metadata)
    if any(".layers.1." in name for name in tensors):
        os.kill(os.getpid(), signal.SIGKILL)
disk_storage.save_file = save_file
compress_folder(sys.argv[1], sys.argv[2], sys.argv[3])
"""


def test_killed_while_writing_a_block_loses_only_that(llama_folder, tmp_path, recipe):
    path = tmp_path / "recipe.toml"
    weights = recipe["weights"] | {"format": "int4:g32"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in weights.items()]
    more = [f"{key} = {json.dumps(value)}" for key, value in recipe["calibration"].items()]
    path.write_text("\n".join(["[weights]", *lines, "[calibration]", *more]))
    command = [sys.executable, "-c", KILLED, str(llama_folder[0]), str(tmp_path / "out"), str(path)]
    assert subprocess.run(command, capture_output=True).returncode == -9
    assert os.listdir(tmp_path / "out.partial/finished") == ["1.json"]
    compress_folder(str(llama_folder[0]), tmp_path / "out", path)
    compress_folder(str(llama_folder[0]), tmp_path / "whole", path)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("step", ["_take_place", "_clear"])
def test_interrupted_while_the_folder_gets_its_place(llama_folder, tmp_path, recipe, monkeypatch, step):
    """Before the finished folder takes the place of another, and after, when what is left of the work is deleted. See
    also tests/attacks/test_publishing.py."""
    out, stages, finish = tmp_path / "out", [], DiskStorage.finish
    compress_folder(str(llama_folder[0]), out, {})

    def interrupt(*_):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(publish, step, interrupt)
        with pytest.raises(Stop):
            compress_folder(str(llama_folder[0]), out, recipe)
    stated = json.loads((out / "config.json").read_text())["quantization_config"]["recipe"]["weights"]["density"]
    assert stated == (1.0 if step == "_take_place" else 0.5) and load_model(str(out))
    monkeypatch.setattr(DiskStorage, "finish", lambda *arguments: stages.append(arguments[1]) or finish(*arguments))
    compress_folder(str(llama_folder[0]), out, recipe)
    assert len(stages) == (0 if step == "_take_place" else 4) and not (tmp_path / "out.partial").exists()
    compress_folder(str(llama_folder[0]), tmp_path / "whole", recipe)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_all_files_can_be_read_by_whom_the_umask_allows(llama_folder, tmp_path, umask):
    before = os.umask(umask)
    try:
        compress_folder(str(llama_folder[0]), tmp_path / "out", {}, shard_bytes=30_000)
        load_model(str(tmp_path / "out")).model.save_pretrained(tmp_path / "saved")
    finally:
        os.umask(before)
    for folder in (tmp_path / "out", tmp_path / "saved"):
        assert folder.stat().st_mode & 0o777 == 0o777 & ~umask
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666 & ~umask}


def test_a_full_disc_loses_nothing(llama_folder, tmp_path, recipe, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(
            OutputError, match=r"hidden/1.* cannot be 0 MB large \(No space left on device\): make room"
        ):
            compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    save = disk_storage.save_file
    for broken in (1, 3):
        written = []

        def fail(*arguments, broken=broken, written=written):
            written.append(1)
            if len(written) == broken:
                raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
            save(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(disk_storage, "save_file", fail)
            with pytest.raises(OutputError, match=r"cannot be written to .*out.partial \(.*No space left.*make room"):
                compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    compress_folder(str(llama_folder[0]), tmp_path / "whole", recipe)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_another_job_in_the_same_place_is_refused(llama_folder, tmp_path, recipe):
    with pytest.raises(Stop):
        compress_folder(str(llama_folder[0]), tmp_path / "out", recipe, progress=stop_after(1))
    other = {**recipe, "weights": {**recipe["weights"], "density": 0.25}}
    with pytest.raises(OutputError, match=r"out.partial holds the finished blocks of another model, recipe or version"):
        compress_folder(str(llama_folder[0]), tmp_path / "out", other)
    copy = shutil.copytree(llama_folder[0], tmp_path / "copy")
    os.utime(copy / "model.safetensors", (1, 1))
    with pytest.raises(OutputError, match="another model, recipe or version"):
        compress_folder(str(copy), tmp_path / "out", recipe)
    compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)


def test_two_at_once_are_refused(llama_folder, tmp_path, recipe):
    def second(state):
        if state.done == 1:
            compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)

    with pytest.raises(OutputError, match=r"another tilepress is writing .*out.partial"):
        compress_folder(str(llama_folder[0]), tmp_path / "out", recipe, progress=second)


def test_a_tied_head_can_stay(llama_folder, tmp_path):
    compress_folder(str(llama_folder[0]), tmp_path / "out", {"weights": {"embedding": "keep"}})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_an_embedding_is_stored_and_loaded_once(llama_folder, tmp_path):
    """Also by a model without its output layer, and after it was saved again."""
    recipe = {"weights": {"format": "int8:row"}, "activations": {"format": "int8"}}
    outcome = compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    stored = Shards(tmp_path / "out").shapes
    assert outcome.layers[-1].tied == "lm_head" and not any(name.startswith("lm_head") for name in stored)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.lm_head.matrix is model.model.embed_tokens.matrix and model.lm_head.activations == "float"
    expected = AutoModelForCausalLM.from_pretrained(llama_folder[0])(tiny.windows()).logits
    assert torch.nn.functional.cosine_similarity(model(tiny.windows()).logits, expected, dim=-1).mean() > 0.95
    model.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again(tiny.windows()).logits, model(tiny.windows()).logits)
    assert Shards(tmp_path / "again").shapes == stored
    headless = AutoModel.from_pretrained(tmp_path / "out")
    assert torch.equal(headless.embed_tokens(tiny.windows()), model.model.embed_tokens(tiny.windows()))


def test_one_block_is_in_memory_at_a_time(tmp_path, recipe, monkeypatch):
    """Weights that the model holds, each time a block is fetched: never those of another block."""
    folder, _ = tiny.save(tmp_path / "model", num_hidden_layers=6)
    held = []
    fetch = StreamedModel.fetch

    def spy(self, keys):
        fetch(self, keys)
        state = self.model.state_dict()
        held.append({key.split(".")[2] for key, value in state.items() if ".layers." in key and not value.is_meta})

    monkeypatch.setattr(StreamedModel, "fetch", spy)
    compress_folder(str(folder), tmp_path / "out", recipe)
    assert max(map(len, held)) == 1 and set().union(*held) == set("012345")


def test_a_model_in_shards_and_in_halves(tmp_path, recipe):
    tiny.make("llama").to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="50KB")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 2
    compress_folder(str(tmp_path / "model"), tmp_path / "out", recipe)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.model.norm.weight.dtype == torch.bfloat16
    next((tmp_path / "model").glob("model-00001-*")).unlink()
    with pytest.raises(ValueError, match=r"lacks model-00001.*, which model.safetensors.index.json names"):
        compress_folder(str(tmp_path / "model"), tmp_path / "again", recipe)


def test_a_folder_without_safetensors_is_refused(tmp_path, llama_folder):
    folder = shutil.copytree(llama_folder[0], tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a safetensors file"):
        compress_folder(str(folder), tmp_path / "out", {})
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"holds neither model.safetensors nor"):
        compress_folder(str(folder), tmp_path / "out", {})
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model.safetensors.index.json is no index of tensors"):
        compress_folder(str(folder), tmp_path / "out", {})


def test_weights_of_other_shapes_than_the_config_says_are_refused(tmp_path, llama_folder):
    folder = shutil.copytree(llama_folder[0], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    with pytest.raises(
        ModelUnavailableError, match=r"gate_proj.weight is \[128, 64\] in the files .* and \[96, 64\] by its"
    ):
        compress_folder(str(folder), tmp_path / "out", {})
    with pytest.raises(ModelUnavailableError, match=r"holds weights of other shapes than its config.json says"):
        load_model(str(folder))
    assert not (tmp_path / "out.partial").exists()


def test_weights_that_are_no_numbers_are_named(tmp_path, llama_folder, recipe):
    folder = shutil.copytree(llama_folder[0], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"model.layers.1.mlp.up_proj: weights must be finite: 1 are not"):
        compress_folder(str(folder), tmp_path / "out", {})
    with pytest.raises(ValueError, match=r"model.layers.1.mlp.down_proj: calibration inputs must be finite"):
        compress_folder(str(folder), tmp_path / "other", recipe)


def test_windows_longer_than_the_model_takes_are_refused(tmp_path, llama_folder, recipe):
    long = recipe | {"calibration": recipe["calibration"] | {"length": 65}}
    with pytest.raises(ValueError, match=r"takes 64 tokens at once, and calibration.length is 65: give 64 or less"):
        compress_folder(str(llama_folder[0]), tmp_path / "out", long)


def test_weights_that_came_in_four_bits_are_taken_as_they_are(tmp_path):
    """By default and whatever the method; a format that is named, and sparse weights, are as asked."""
    model = tiny.make("llama")
    for layer in linear_layers(model.model).values():
        groups = layer.weight.data.view(len(layer.weight), -1, 32)
        step = groups.abs().amax(-1, keepdim=True).half().float() / 8
        groups.copy_((groups / step).round().clamp(-8, 7) * step)
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    said = []
    outcome = compress_folder(str(tmp_path / "model"), tmp_path / "out", {}, announce=said.append)
    assert {layer.format for layer in outcome.layers[:-1]} == {"uint4:g32"}
    assert {layer.grid_error for layer in outcome.layers[:-1]} == {0.0} and outcome.layers[-1].grid_error is None
    assert said == [
        "the weights came on a grid of 4 bits, which uint4:g32 takes as it is; int4:g32 would round them a second time "
        "(--weights int4:g32 does)"
    ]
    weights = linear_layers(unpack_layers(load_model(str(tmp_path / "out")).model).model)
    assert all(torch.equal(weights[name].weight, one.weight) for name, one in linear_layers(model.model).items())
    for recipe in ({"format": "int4:g32"}, {"density": 0.5}):
        outcome = compress_folder(str(tmp_path / "model"), tmp_path / "out", {"weights": recipe})
        assert {layer.format for layer in outcome.layers[:-1]} == {"int4:g32"}


def test_a_model_card_says_what_was_done(llama_folder, tmp_path):
    recipe = {"weights": {"format": "int4:g32", "density": 0.5}}
    outcome = compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    card = (tmp_path / "out/README.md").read_text()
    parameters = sum(tensor.numel() for tensor in tiny.make("llama").parameters())
    assert outcome.share.total == outcome.share.packed + outcome.share.kept == parameters
    assert f"- {outcome.share.packed:,} of {outcome.share.total:,} parameters are packed" in card
    assert "- 21 layers in int4:g32" in card and "density = 0.5" in card
    assert "- 1 layers in int8:row" in card and str(tmp_path) not in card
    load_model(str(tmp_path / "out"))
    (tmp_path / "out/README.md").write_text("mine")  # people edit it
    load_model(str(tmp_path / "out"))
    with pytest.raises(OutputError, match=r"README.md is not as tilepress wrote it"):
        compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    assert (tmp_path / "out/README.md").read_text() == "mine"
