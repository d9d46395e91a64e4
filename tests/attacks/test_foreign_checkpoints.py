"""Checkpoints that would lose something without a word: scales of quantised weights, layers, a vision tower."""

import json
import re
import sys
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models import tiny

from tilepress.cli import main
from tilepress.models import ModelUnavailableError, compress_folder, load_model

PROJECTION = "model.layers.1.mlp.up_proj"
LARGEST = 448.0  # of float8_e4m3fn


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def to_fp8(tensors, scale, block):
    """Linear layers in FP8 with scales, of blocks as DeepSeek stores them or of whole tensors."""
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name].float()
        factor = weight.abs().max() / LARGEST
        tensors[name] = (weight / factor).to(torch.float8_e4m3fn)
        tensors[name.replace(".weight", scale)] = factor.expand(1, 1).clone() if block else factor.view(1).clone()


@pytest.fixture
def folder(tmp_path):
    return tiny.save(tmp_path / "model")[0]


def assert_refused(folder, text, **allowed):
    """By both readers of a model, in one line, and nothing is written."""
    out = folder.with_name("out")
    for attempt in (load_model, partial(compress_folder, out=out, recipe={})):
        with pytest.raises(ModelUnavailableError, match=text) as error:
            attempt(str(folder), **allowed)
        assert "\n" not in str(error.value)
    assert not out.exists() and not out.with_name("out.partial").exists()


FP8 = {
    "fp8": (".weight_scale_inv", True, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
    "compressed-tensors": (
        ".weight_scale",
        False,
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "tensor"}}},
        },
    ),
}


@pytest.mark.parametrize("method", FP8)
def test_fp8_checkpoints(folder, method, tmp_path):
    """Packed with their scales, not loaded without."""
    scale, block, config = FP8[method]
    rewrite(folder, lambda tensors: to_fp8(tensors, scale, block))
    edit(folder / "config.json", quantization_config=config)
    with pytest.raises(ModelUnavailableError, match=f"is quantised already, by {method}, and has to be packed first"):
        load_model(str(folder))
    outcome = compress_folder(str(folder), tmp_path / "packed", {})
    assert len(outcome.layers) == 21 and not any(layer.error for layer in outcome.layers)
    edit(folder / "config.json", quantization_config=None)
    first = f"model.layers.0.mlp.down_proj{scale}"
    assert_refused(folder, f"has 21 tensors that LlamaForCausalLM does not use, {re.escape(first)} among them: give a")
    assert_refused(folder, "has 21 tensors that LlamaForCausalLM does not use", text_only=True)


@pytest.mark.parametrize(("stated", "method"), [({"quant_method": "aqlm"}, "aqlm"), ({"bits": 4}, "an unknown method")])
def test_weights_quantised_by_others(folder, stated, method):
    edit(folder / "config.json", quantization_config=stated)
    assert_refused(folder, f"is quantised already, by {method}, and")


def test_more_layers_than_the_config_says(folder):
    edit(folder / "config.json", num_hidden_layers=2)
    assert_refused(
        folder, r"has 9 tensors that LlamaForCausalLM does not use, model.layers.2.input_layernorm.weight am"
    )


def test_weights_that_would_be_read_from_elsewhere(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert_refused(folder, "holds an adapter beside the model: merge them, and save that")
    (folder / "adapter_config.json").unlink()
    edit(folder / "config.json", transformers_weights="adapter_model.bin")
    assert_refused(folder, r"config.json names files of weights by itself: save the model again")


def test_tensors_that_a_model_computes_or_shares_may_be_there(folder, tmp_path):
    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    rewrite(folder, add)
    assert load_model(str(folder)).model.lm_head.weight.shape == (tiny.VOCABULARY, 64)
    compress_folder(str(folder), tmp_path / "out", {})


def test_an_output_layer_of_its_own_is_kept_whatever_the_config_says(folder, tmp_path):
    """The config says that it shares the embedding's weights."""
    own = torch.randn(tiny.VOCABULARY, 64, generator=torch.Generator().manual_seed(0))
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": own}))
    assert torch.equal(load_model(str(folder)).model.lm_head.weight, own)
    compress_folder(str(folder), tmp_path / "out", {}, announce=lambda _: None)
    assert torch.equal(load_model(str(tmp_path / "out")).model.lm_head.weight, own)


def test_tensors_that_a_class_of_models_is_known_to_have_too_many_of(tmp_path):
    folder, _ = tiny.save(tmp_path / "model", "gpt_neox")
    rewrite(folder, lambda tensors: tensors.update({"gpt_neox.layers.0.attention.masked_bias": torch.ones(1)}))
    load_model(str(folder))
    compress_folder(str(folder), tmp_path / "out", {})


@pytest.fixture
def multimodal(tmp_path):
    """Qwen3.5: a language model and a vision tower."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = {key: tiny.GATED[key] for key in ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads")}
    text |= {"num_hidden_layers": 2, "intermediate_size": 64, "head_dim": 16, "tie_word_embeddings": True}
    text |= {f"linear_num_{kind}_heads": 2 for kind in ("key", "value")}
    text |= {f"linear_{kind}_head_dim": 8 for kind in ("key", "value")}
    text |= {"layer_types": ["full_attention", "linear_attention"], "max_position_embeddings": 64}
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    torch.manual_seed(0)
    Qwen3_5ForConditionalGeneration(config).eval().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_vision_tower_is_not_lost_without_a_word(multimodal):
    names = list(load_file(multimodal / "model.safetensors"))
    assert any(name.startswith("model.visual.") for name in names)
    assert_refused(
        multimodal, r"has parts that Qwen3_5ForCausalLM is without, model.visual: to leave them out and keep"
    )


def test_a_vision_tower_is_left_out_for_who_wants_that(multimodal, tmp_path):
    said = []
    dense = load_model(str(multimodal), text_only=True, announce=said.append)
    compress_folder(str(multimodal), tmp_path / "out", {}, text_only=True, announce=said.append)
    assert len(said) == 2 and all(
        re.search(r"^left out of .*model, text only: model.visual \(\d+ ten", one) for one in said
    )
    small = load_model(str(tmp_path / "out"), dtype=torch.float32).model  # says for itself that it is text only
    assert small.config.model_type == "qwen3_5_text"
    logits = [model(tiny.windows()).logits.flatten() for model in (dense.model.float(), small)]
    assert torch.cosine_similarity(*logits, dim=0) > 0.95


def test_what_a_command_leaves_out_is_said(multimodal, monkeypatch, capsys):
    out = str(multimodal.with_name("out"))
    monkeypatch.setattr(sys, "argv", ["tilepress", "compress", str(multimodal), "-o", out, "--text-only"])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert not end.value.code, said
    assert f"left out of {multimodal}, text only: model.visual (" in said


def test_scales_beside_a_vision_tower(multimodal):
    scale = "model.language_model.layers.0.mlp.up_proj.weight_scale_inv"
    rewrite(multimodal, lambda tensors: tensors.update({scale: torch.ones(1)}))
    assert_refused(
        multimodal, f"has 1 tensors that Qwen3_5ForCausalLM does not use, {scale} among them", text_only=True
    )
