"""What a folder's config says of the layers that vLLM asks about, by vLLM's names."""

import pytest
import torch

from tests.models import tiny
from tilepress.models import compress_model
from tilepress.vllm_plugin.stated import Stated, part_number

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
ATTENTION, MLP = "model.layers.1.self_attn", "model.layers.1.mlp"


def config_of(recipe, **changes):
    model = compress_model(tiny.make("llama", **changes), recipe, windows=tiny.windows())
    config = dict(vars(model.config.quantization_config))
    return {**config, "quant_method": "tilepress"}


@pytest.fixture
def stated():
    return Stated(config_of({"weights": {"embedding": "int8:row"}}))


def test_a_joined_layer_is_its_parts_in_order(stated):
    assert stated.packed_parts(f"{ATTENTION}.qkv_proj", FUSED) == [f"{ATTENTION}.{one}_proj" for one in "qkv"]
    assert stated.packed_parts(f"{MLP}.gate_up_proj", FUSED) == [f"{MLP}.gate_proj", f"{MLP}.up_proj"]
    assert stated.packed_parts(f"{MLP}.down_proj", FUSED) == [f"{MLP}.down_proj"]


def test_parts_are_numbered_as_they_are_joined():
    assert [part_number(shard) for shard in ("q", "k", "v", 0, 1, None)] == [0, 1, 2, 0, 1, 0]


def test_an_embedding_is_found_with_and_without_its_name(stated):
    assert stated.embedding("") == stated.embedding("model.embed_tokens") == "model.embed_tokens"
    assert stated.embedding("model.embed_positions") is None
    assert stated.tied("lm_head") == "model.embed_tokens"


def test_dense_layers_have_no_packed_parts():
    stated = Stated(config_of({"weights": {"embedding": "keep"}}, tie_word_embeddings=False))
    assert stated.packed_parts("lm_head", FUSED) == []
    assert stated.embedding("") is None and stated.tied("lm_head") is None


def test_layers_take_the_names_that_vllm_has(stated):
    names = {name: f"language_model.{name}" for name in stated.names}
    stated.rename(names)
    assert stated.packed_parts(f"language_model.{MLP}.down_proj", FUSED) == [f"language_model.{MLP}.down_proj"]
    assert stated.tied("language_model.lm_head") == "language_model.model.embed_tokens"


def test_layers_that_are_joined_are_packed_together(stated):
    stated.layers = {name: layer for name, layer in stated.layers.items() if name != f"{MLP}.up_proj"}
    stated.dense = frozenset([f"{MLP}.up_proj"])
    with pytest.raises(ValueError, match=r"vLLM computes .*gate_proj and .*up_proj at once, and only the first is"):
        stated.packed_parts(f"{MLP}.gate_up_proj", FUSED)


def test_an_unknown_layer_is_refused(stated):
    with pytest.raises(ValueError, match=r"vLLM has a layer model\.layers\.1\.mlp\.fc1, and the folder has none of"):
        stated.packed_parts(f"{MLP}.fc1", FUSED)


def test_packed_experts_are_refused(stated):
    stated.refuse_inside(f"{ATTENTION}.attn", "Attention")
    with pytest.raises(ValueError, match=r"vLLM's FusedMoE computes with model\.layers\.1\.mlp\.gate_proj itself"):
        stated.refuse_inside(MLP, "FusedMoE")


@pytest.mark.parametrize("cache", [{"format": "bfp8"}, {"format": "bfp4", "smoothing": "online"}])
def test_a_recipe_with_a_cache_of_ours_is_refused(cache):
    with pytest.raises(ValueError, match=rf"stores keys and values as {cache['format']}, and vLLM stores them its own"):
        Stated(config_of({"kv_cache": cache}, head_dim=32))


def test_a_folder_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"written in version 1 of tilepress' folders and this tilepress reads 2"):
        Stated({**config_of({}), "version": 1})


def test_names_of_layers_are_those_of_the_model(stated):
    linear = {name for name, module in tiny.make("llama").named_modules() if isinstance(module, torch.nn.Linear)}
    assert linear - {"lm_head"} <= stated.layers.keys()
