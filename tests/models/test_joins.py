"""Mixtures of experts streamed from their files, expert by expert or joined: as compressed in memory."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models import mixtures, tiny
from tests.models.test_linear_form import make
from tilepress.models import ModelUnavailableError, compress_folder, compress_model
from tilepress.models.joins import Join, find_joins
from tilepress.models.shards import Shards

INT8 = {"weights": {"format": "int8:g32"}}


def save(folder, family):
    model = make(family)
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return model


def streamed(folder, out, recipe=INT8):
    """The arrays of the folder compressed block by block, and what was said meanwhile."""
    said = []
    outcome = compress_folder(str(folder), out, recipe, announce=said.append)
    arrays = {}
    for path in outcome.folder.glob("*.safetensors"):
        arrays |= load_file(path)
    return arrays, said


@pytest.mark.parametrize("family", [*mixtures.FAMILIES, "gpt2", "falcon"])
def test_every_family_is_streamed(family, tmp_path):
    model = save(tmp_path / "model", family)
    arrays, said = streamed(tmp_path / "model", tmp_path / "out")
    compress_model(model, INT8)
    state = model.state_dict()
    assert said == [] and state.keys() - arrays.keys() <= {"lm_head.weight"}  # tied
    assert all(torch.equal(array, state[name]) for name, array in arrays.items())


def test_a_checkpoint_with_joined_experts_gives_the_same(tmp_path):
    model = save(tmp_path / "single", "qwen3_moe")
    save(tmp_path / "joined", "qwen3_moe")
    save_file(model.state_dict(), tmp_path / "joined/model.safetensors", {"format": "pt"})
    assert "model.layers.0.mlp.experts.gate_up_proj" in Shards(tmp_path / "joined").shapes
    first, second = (streamed(tmp_path / name, tmp_path / f"{name}.out") for name in ("single", "joined"))
    assert first[0].keys() == second[0].keys() and first[1] == second[1] == []
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])


def test_only_the_tensors_of_an_expert_are_read(tmp_path):
    model = save(tmp_path, "mixtral")
    joins, read = find_joins(model, Shards(tmp_path)), []

    class Spy(Shards):
        def __getitem__(self, name):
            read.append(name)
            return super().__getitem__(name)

    from tilepress.models.linear_form import Part

    key = "model.layers.1.mlp.experts.gate_up_proj"
    expert = joins[key].read(Spy(tmp_path), model, Part(key, 2))
    assert torch.equal(expert, model.get_parameter(key)[2])
    assert read == [f"model.layers.1.block_sparse_moe.experts.2.{name}.weight" for name in ("w1", "w3")]
    assert torch.equal(joins[key].read(Shards(tmp_path), model, None), model.get_parameter(key))
    assert isinstance(joins[key], Join) and len(joins) == 4


def test_calibrated_and_resumed(tmp_path):
    """Interrupted after its first block, the same call gives the same bytes as one that was not."""
    save(tmp_path / "model", "qwen3_moe")
    (tmp_path / "text.txt").write_text(tiny.text())
    calibration = {"text": str(tmp_path / "text.txt"), "sequences": 8, "length": 16}
    recipe = {"weights": {"format": "int4:g32", "quantize": "gptq"}, "calibration": calibration}
    whole, _ = streamed(tmp_path / "model", tmp_path / "whole", recipe)

    def stop(state):
        if state.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress_folder(str(tmp_path / "model"), tmp_path / "out", recipe, progress=stop, announce=lambda _: None)
    resumed, _ = streamed(tmp_path / "model", tmp_path / "out", recipe)
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[name], resumed[name]) for name in whole)
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert config["uncalibrated"] and all(".experts." in name for name in config["uncalibrated"])


def test_an_expert_of_another_size_is_refused(tmp_path):
    save(tmp_path / "model", "mixtral")
    arrays = load_file(tmp_path / "model/model.safetensors")
    name = "model.layers.0.block_sparse_moe.experts.1.w2.weight"
    arrays[name] = arrays[name][:, :32].clone()
    save_file(arrays, tmp_path / "model/model.safetensors", {"format": "pt"})
    with pytest.raises(ModelUnavailableError, match=r"experts.1.down_proj.weight is \[64, 32\] as the files have it"):
        streamed(tmp_path / "model", tmp_path / "out")
