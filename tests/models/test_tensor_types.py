"""Which of Anda's tensor types the layers of a model take."""

from collections import Counter

import pytest
import torch
from torch import nn
from transformers import BloomConfig, BloomForCausalLM, PhiConfig, PhiForCausalLM

from tests.models import tiny
from tilepress.compression.search import bops_saving
from tilepress.models import compress_model
from tilepress.models.tensor_types import TensorTypeError, classify, layer_activations, products

SMALL = {"vocab_size": 32, "hidden_size": 32}


def counts(model, **options):
    """How many layers of a block take each type."""
    counts = Counter(kind for name, kind in classify(model, **options).items())
    return {kind: count / 3 for kind, count in counts.items()}


@pytest.mark.parametrize(
    ("family", "expected"),
    {
        "llama": {"qkv": 3, "o": 1, "u": 2, "d": 1},
        "mistral": {"qkv": 3, "o": 1, "u": 2, "d": 1},
        "qwen2": {"qkv": 3, "o": 1, "u": 2, "d": 1},
        "opt": {"qkv": 3, "o": 1, "u": 1, "d": 1},
        "gpt_neox": {"qkv": 1, "o": 1, "u": 1, "d": 1},
    }.items(),
)
def test_every_family(family, expected):
    model = tiny.make(family)
    assert counts(model) == expected
    assert "lm_head" not in classify(model) and not any("project" in name for name in classify(model))


def test_other_families_by_the_same_names():
    bloom = BloomForCausalLM(BloomConfig(**SMALL, n_layer=3, n_head=4))
    phi = PhiForCausalLM(PhiConfig(**SMALL, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64))
    assert counts(bloom) == {"qkv": 1, "o": 1, "u": 1, "d": 1}
    assert counts(phi) == {"qkv": 3, "o": 1, "u": 1, "d": 1}


def test_packed_layers_are_known_too():
    model = tiny.make("llama")
    before = classify(model)
    compress_model(model, {"weights": {"lm_head": "compress"}})
    assert classify(model) == before and len(before) == 21


def test_opt_weights_and_the_savings_of_the_paper():
    """OPT's feed-forward network is four times as wide as its hidden states."""
    from transformers import OPTConfig, OPTForCausalLM

    with torch.device("meta"):
        model = OPTForCausalLM(OPTConfig())  # OPT-125M: hidden 768, 12 layers, 3072 wide
    counts = products(model, classify(model))
    assert [count / (12 * 768**2) for count in counts] == [3, 1, 4, 4]
    assert bops_saving((7, 7, 6, 5), counts) == pytest.approx(16 / 6)
    assert bops_saving((13, 13, 13, 13), counts) == pytest.approx(1.23, abs=0.005)
    assert bops_saving((4, 4, 4, 4), counts) == 4


def test_llama_weights_come_from_its_own_shapes():
    model = tiny.make("llama")
    # 64 wide, 2 of 4 heads for keys and values, feed-forward network of 128.
    assert products(model, classify(model)) == (3 * 64 * 128, 3 * 64 * 64, 3 * 2 * 64 * 128, 3 * 64 * 128)


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"mixer": nn.Linear(8, 24), "router": nn.Linear(8, 2)}) for _ in "ab")


def test_a_layer_nobody_knows_is_named_with_what_to_do():
    with pytest.raises(TensorTypeError) as error:
        classify(Odd())
    assert "which tensor type the layer layers.0.mixer takes: map its name to one of qkv, o, u, d" in str(error.value)
    assert '[activations.types] "*.mixer" = "u"' in str(error.value)


def test_a_mapping_for_other_families():
    types = classify(Odd(), {"*": "u", "*.mixer": "qkv", "*.router": "fp"})
    assert types == {f"layers.{i}.{name}": kind for i in (0, 1) for name, kind in (("mixer", "qkv"), ("router", "fp"))}
    assert products(Odd(), types) == (2 * 8 * 24, 0, 0, 0)


def test_a_mapping_goes_before_names_and_reaches_what_is_outside():
    types = classify(tiny.make("llama"), {"*.o_proj": "d", "lm_head": "u"})
    assert types["model.layers.0.self_attn.o_proj"] == "d" and types["lm_head"] == "u"


def test_a_model_with_no_layer_of_a_type():
    with pytest.raises(TensorTypeError, match="Odd has no linear layer that takes one of Anda's tensor types"):
        classify(Odd(), {"*": "fp"})


def test_activations_of_layers():
    model = tiny.make("opt")
    block = "model.decoder.layers.0."
    activations = layer_activations(model, "anda:8,7,6,5")
    names = ("self_attn.k_proj", "self_attn.out_proj", "fc1", "fc2")
    assert [activations[block + name] for name in names] == [f"bfp:g64:m{bits}" for bits in (8, 7, 6, 5)]
    assert activations["lm_head"] == activations["model.decoder.project_in"] == "float"
    assert set(layer_activations(model, "anda:1%").values()) == {"float"}
    assert set(layer_activations(model, "bfp:g32:m8").values()) == {"bfp:g32:m8"}
    assert set(layer_activations(model, "fp").values()) == {"float"}
