"""GPT-OSS as it is published: MXFP4 experts, all of a projection in one tensor of blocks and one of scales."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.models import mixtures, tiny
from tests.models.quantized import writers
from tilepress.models import ModelUnavailableError, compress_folder, load_model
from tilepress.models.quantized import open_checkpoint
from tilepress.models.shards import Shards
from tilepress.tiles import unpack

EXPERTS, HIDDEN, INNER = 4, 64, 128
SHAPES = {"gate_up_proj": (2 * INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}  # [neurons, inputs] of one expert
CONFIG = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def by_formula(codes, scales):
    """float32: sign · magnitude · 2^(scale − 127)."""
    values = E2M1[codes & 7] * torch.where(codes >= 8, -1.0, 1.0)
    return values * torch.exp2(scales.float() - 127).repeat_interleave(32, -1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """(folder, folder of the dense model that it stands for, parameter → weights [experts, neurons, inputs])."""
    root, random = tmp_path_factory.mktemp("gpt-oss"), torch.Generator().manual_seed(0)
    model = mixtures.make("gpt_oss")
    for parameter in model.parameters():  # biases are zero at first
        parameter.data = torch.randn(parameter.shape, generator=random) / 8
    tensors, expected = {}, {}
    for layer in range(2):
        for projection, (neurons, inputs) in SHAPES.items():
            name = f"model.layers.{layer}.mlp.experts.{projection}"
            codes = torch.randint(0, 16, (EXPERTS, neurons, inputs), generator=random)
            scales = torch.randint(120, 126, (EXPERTS, neurons, inputs // 32), generator=random).byte()
            tensors[f"{name}_blocks"] = writers.nibbles(codes).view(EXPERTS, neurons, inputs // 32, 16)
            tensors[f"{name}_scales"] = scales
            expected[name] = by_formula(codes, scales)
            model.get_parameter(name).data = expected[name].transpose(1, 2).contiguous()
    for folder in (root / "model", root / "dense"):
        model.save_pretrained(folder)
        tiny.tokenizer().save_pretrained(folder)
    change(root / "model", lambda stored: stored.update(tensors), drop=expected)
    state(root / "model", CONFIG)
    return root / "model", root / "dense", expected


def change(folder, edit, drop=()):
    tensors = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if name not in drop}
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def state(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}))


def copy(checkpoint, folder, edit):
    folder.mkdir()
    for path in checkpoint[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    change(folder, edit)
    return folder


def compress(folder, out, recipe=None):
    said = []
    return compress_folder(str(folder), out, recipe or {}, announce=said.append), said


def test_the_formula_is_transformers_own(checkpoint):
    folder, _, expected = checkpoint
    tensors = load_file(folder / "model.safetensors")
    for name, weights in expected.items():
        parts = tensors[f"{name}_blocks"], tensors[f"{name}_scales"]
        theirs = convert_moe_packed_tensors(*parts, dtype=torch.float32)
        assert torch.equal(theirs, weights.transpose(1, 2))


def test_experts_are_packed_as_they_come(checkpoint, tmp_path):
    folder, dense, expected = checkpoint
    outcome, said = compress(folder, tmp_path / "out")
    assert said[0] == f"{folder}: 16 of 16 layers have the codes and scales of mxfp4"
    assert {(layer.format, layer.error, layer.rounding) for layer in outcome.layers} == {("mxfp4", 0.0, "")}
    model = load_model(str(tmp_path / "out"), dtype=torch.float32).model
    for name, weights in expected.items():
        owner, _, projection = name.rpartition(".")
        for number, layer in enumerate(model.get_submodule(owner).projections(projection)):
            assert torch.equal(unpack(layer.matrix), weights[number])
    tokens = tiny.windows()
    logits, whole = model(tokens).logits, load_model(str(dense), dtype=torch.float32).model(tokens).logits
    assert torch.allclose(logits, whole, atol=1e-3) and logits.std() > 0.1


def test_one_expert_is_in_memory_at_a_time(checkpoint, tmp_path, monkeypatch):
    read = Shards.__getitem__

    def read_all(shards, name):
        assert "_blocks" not in name, f"{name} is read whole"
        return read(shards, name)

    monkeypatch.setattr(Shards, "__getitem__", read_all)
    compress(checkpoint[0], tmp_path / "out")


def test_experts_are_rounded_a_second_time_where_that_is_asked_for(checkpoint, tmp_path):
    folder, dense, _ = checkpoint
    recipe = {"weights": {"format": "int8:g32"}}
    (ours, said), (theirs, _) = compress(folder, tmp_path / "ours", recipe), compress(dense, tmp_path / "dense", recipe)
    assert "the recipe states weights.format: its weights are rounded a second time, to int8:g32" in said[0]
    assert [layer.error for layer in ours.layers] == [layer.error for layer in theirs.layers]


def test_experts_as_one_tensor_are_what_the_model_has(checkpoint):
    shards = open_checkpoint(checkpoint[0])
    for name, weights in checkpoint[2].items():
        assert shards.shapes[name] == (EXPERTS, *reversed(SHAPES[name.rpartition(".")[2]]))
        assert torch.equal(shards[name], weights.transpose(1, 2))
        assert torch.equal(shards.part(name, 2), weights[2].T)
        assert torch.equal(shards.part(f"{name}_bias", 2), shards[f"{name}_bias"][2])


NAME = "model.layers.1.mlp.experts.down_proj"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop(f"{NAME}_scales"), "down_proj_scales is missing beside the layer's other quantised tensors"),
        (lambda t: t[f"{NAME}_scales"].fill_(255), "down_proj has scales that are not a number"),
        (lambda t: t.update({f"{NAME}_scales": t[f"{NAME}_scales"][:3].clone()}), r"U8 \[3, 64, 4\] where U8 \[4, 64"),
        (lambda t: t.update({f"{NAME}_blocks": t[f"{NAME}_blocks"][0].clone()}), r"where U8 \[any, any, any, 16\]"),
        (lambda t: t.update({NAME: torch.zeros(4, 128, 64)}), "has .*down_proj twice, as it was and quantised"),
        (lambda t: t.update({f"{NAME}_bias": torch.zeros(3, 64)}), r"down_proj_bias is \[3, 64\] in the files"),
    ],
)
def test_damage_is_refused(checkpoint, tmp_path, edit, message):
    folder = copy(checkpoint, tmp_path / "model", edit)
    with pytest.raises((ModelUnavailableError, ValueError), match=message) as error:
        compress(folder, tmp_path / "out")
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()
