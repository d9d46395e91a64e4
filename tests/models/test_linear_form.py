"""Layers that are no nn.Linear but compute as one: mixtures of experts, GPT-2 and Falcon, packed."""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, FalconConfig, FalconForCausalLM, GPT2Config, GPT2LMHeadModel

from tests.models import mixtures, tiny
from tilepress.compression import InputStatistics, WeightPlan, compress_weight
from tilepress.formats import parse_weight
from tilepress.models import compress_model
from tilepress.models.linear_form import to_linear_form, to_stored_form, undone_on_error
from tilepress.models.registration import packed_layers
from tilepress.nn import PackedExperts
from tilepress.tiles import unpack_codes

ROUTERS = ("TopKRouter", "TopkRouter", "Router")
INT8 = {"weights": {"format": "int8:g32"}}


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 96}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).eval()


def falcon():
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96}
    return FalconForCausalLM(FalconConfig(**sizes, bos_token_id=1, eos_token_id=2)).eval()


MODELS = {**{family: family for family in mixtures.FAMILIES}, "gpt2": gpt2, "falcon": falcon}


def make(family):
    return MODELS[family]() if callable(MODELS[family]) else mixtures.make(family)


def logits(model):
    with torch.no_grad():
        return model(tiny.windows(2)).logits


@pytest.mark.parametrize("family", MODELS)
def test_every_family_is_packed_saved_loaded_and_unpacked(family, tmp_path):
    model = make(family)
    state, before = copy.deepcopy(model).state_dict(), logits(model)
    compress_model(model, INT8)
    packed = logits(model)
    assert 0 < (packed - before).norm() < 0.25 * before.norm()
    dense = model.config.quantization_config.dense
    assert all("router" in name or name.endswith("gate") or name == "lm_head" for name in dense)
    model.save_pretrained(tmp_path / "packed")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    assert torch.equal(logits(loaded), packed)
    base = AutoModel.from_pretrained(tmp_path / "packed")
    inside = [name for name, _ in packed_layers(model) if name != "lm_head"]
    assert len(list(packed_layers(base))) == len(inside)
    dense = loaded.dequantize()
    assert dense.state_dict().keys() == state.keys()
    assert all(tensor.shape == state[name].shape for name, tensor in dense.state_dict().items())
    torch.testing.assert_close(logits(dense), packed, rtol=1e-3, atol=1e-4)
    dense.save_pretrained(tmp_path / "dense")
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "dense")), logits(dense))


@pytest.mark.parametrize("family", ["gpt_oss", "gpt2"])
def test_weights_go_where_they_came_from(family):
    model = make(family)
    state, before = {name: tensor.clone() for name, tensor in model.state_dict().items()}, logits(model)
    parts = to_linear_form(model)
    linear = model.state_dict()
    for name, part in parts.items():
        assert torch.equal(linear[name], part.of(state[part.key]))
    torch.testing.assert_close(logits(model), before, rtol=1e-4, atol=1e-5)
    stored = to_stored_form(model).state_dict()
    assert stored.keys() == state.keys() and all(torch.equal(stored[name], state[name]) for name in state)


def test_a_refused_model_is_as_it_was():
    model = make("gpt2")
    kinds = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match="fits no layer"):
        compress_model(model, {"weights": {"override": [{"match": "*.nothing", "density": 0.5}]}})
    assert [type(module) for module in model.modules()] == kinds
    with pytest.raises(KeyError), undone_on_error(model):
        to_linear_form(model)
        raise KeyError
    assert [type(module) for module in model.modules()] == kinds


def test_experts_are_calibrated_with_the_tokens_routed_to_them():
    """Against statistics taken from the router's own choices."""
    model, windows = mixtures.make("qwen3_moe", num_hidden_layers=1), tiny.windows(16)
    moe = model.model.layers[0].mlp
    weight, seen = moe.experts.gate_up_proj[1].detach().clone(), InputStatistics(64)

    def route(_, arguments):
        hidden, chosen, _ = arguments
        seen.add(hidden[(chosen == 1).any(1)])

    handle = moe.experts.register_forward_pre_hook(route)
    with torch.no_grad():
        for window in windows:
            model(window[None])
    handle.remove()
    recipe = {"weights": {"format": "int4:g32", "quantize": "gptq"}}
    compress_model(model, recipe, windows=windows)
    expected = compress_weight(weight, WeightPlan(parse_weight("int4:g32"), quantize="gptq"), seen)
    packed = model.get_submodule("model.layers.0.mlp.experts.1.gate_up_proj").matrix
    codes = unpack_codes(packed)[0].codes
    assert seen.count >= 64 and (codes != expected.quantized.codes).float().mean() < 0.01  # sums in another order


def test_experts_that_few_tokens_reach_are_named(tmp_path):
    model = mixtures.make("qwen3_moe", num_hidden_layers=1)
    with torch.no_grad():
        model.model.layers[0].mlp.gate.weight[3] = -100 * model.model.layers[0].mlp.gate.weight[:3].sum(0)
    experts = copy.deepcopy(model.model.layers[0].mlp.experts)
    recipe = {"weights": {"format": "int4:g32", "quantize": "gptq"}}
    compress_model(model, recipe, windows=tiny.windows(1))
    uncalibrated = model.config.quantization_config.uncalibrated
    assert {f"model.layers.0.mlp.experts.{n}.gate_up_proj" for n in range(4)} <= set(uncalibrated)
    assert not any("self_attn" in name for name in uncalibrated)
    packed = model.get_submodule("model.layers.0.mlp.experts.3.down_proj").matrix
    expected = compress_weight(experts.down_proj[3], WeightPlan(parse_weight("int4:g32")))
    assert torch.equal(unpack_codes(packed)[0].codes, expected.quantized.codes)


class Normed(nn.Module):
    """Experts that we do not know how to run."""

    def __init__(self):
        super().__init__()
        self.gate_up_proj, self.down_proj = nn.Parameter(torch.ones(2, 64, 64)), nn.Parameter(torch.ones(2, 64, 32))


def test_experts_that_cannot_be_packed_are_said():
    model, said = tiny.make("llama"), []
    model.model.layers[0].mlp.experts = Normed()
    compress_model(model, {}, announce=said.append)
    assert not any(isinstance(module, PackedExperts) for module in model.modules())
    (line,) = said
    assert line.startswith("warning: 116,736 of 129,472 parameters packed (90.2%); 12,736 stay as they were, 0 of them")
    assert line.endswith("cannot be packed: model.layers.*.mlp.experts (12,288)")
    assert (
        "not of transformers' interface of experts"
        in model.config.quantization_config.dense["model.layers.0.mlp.experts"]
    )
    assert model.config.quantization_config.parameters == {"packed": 116736, "kept": 12736, "embeddings": 0}


def test_a_whole_mixture_is_no_warning():
    said = []
    compress_model(mixtures.make("mixtral"), INT8, announce=said.append)
    assert said == ["227,328 of 234,304 parameters packed (97.0%); 6,976 stay as they were, 0 of them embeddings"]


def test_a_folder_of_many_experts_is_not_taken_for_one_that_lacks_weights(tmp_path, monkeypatch):
    """Loading counts what the config describes beside packed layers: no expert is described twice."""
    from tilepress.models import compress_folder, config_limits, load_model

    monkeypatch.setattr(config_limits, "MISSING", 1000)
    mixtures.make("mixtral").save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    compress_folder(str(tmp_path / "model"), tmp_path / "out", {"weights": {"format": "int4:g32"}})
    assert load_model(str(tmp_path / "out")).model(tiny.windows(1)).logits.isfinite().all()
