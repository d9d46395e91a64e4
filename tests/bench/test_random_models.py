"""Models of random weights, contexts of random keys and values, and where the time of a step goes."""

import pytest
import torch
from tests.models import tiny
from torch import nn

from tilepress.bench.breakdown import decode_breakdown
from tilepress.bench.linear import parse_contestant
from tilepress.bench.random_models import FilledWriter, packed_model, random_model
from tilepress.nn import PackedLinear
from tilepress.nn.model_kv_cache import kv_cache

PROMPT = torch.arange(3, 43)[None]


@pytest.fixture
def dense():
    torch.manual_seed(0)
    return random_model(
        tiny.llama(head_dim=32, max_position_embeddings=128, tie_word_embeddings=False).config, torch.float32
    )


def test_layers_are_alike_and_apart(dense):
    first, second, _ = (layer.mlp.up_proj.weight for layer in dense.model.layers)
    assert torch.equal(first, second) and first.data_ptr() != second.data_ptr()
    assert dense(PROMPT).logits.isfinite().all()


@pytest.mark.parametrize("name, density", [("bf16", 1), ("bf16@50%", 0.5), ("int8:row@30%+int8", 0.3)])
def test_every_linear_layer_is_packed(dense, name, density):
    packed = packed_model(dense, parse_contestant(name))
    layers = [module for module in packed.modules() if isinstance(module, PackedLinear)]
    assert len(layers) == 3 * 7 + 1 and not any(isinstance(module, nn.Linear) for module in packed.modules())
    assert all(abs(layer.matrix.density - density) < 0.05 for layer in layers)
    assert packed.model.embed_tokens is dense.model.embed_tokens


def test_dense_packed_weights_compute_the_same(dense):
    packed = packed_model(dense, parse_contestant("bf16"))
    assert torch.allclose(packed(PROMPT).logits, dense(PROMPT).logits, atol=0.05)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "tilepress"])
def test_a_context_is_filled(dense, attention):
    make = (lambda: kv_cache(dense, "sparse:k30,v50")) if attention == "tilepress" else None
    writer = FilledWriter(dense, make, attention)
    first, second = writer.past(PROMPT), writer.past(PROMPT)
    assert first.get_seq_length() == second.get_seq_length() == PROMPT.shape[1] - 1 and first is not second
    times = writer.write(PROMPT, 4)
    assert len(times) == 5 and times == sorted(times)
    assert dense.config._attn_implementation == attention
    assert writer.past(PROMPT).get_seq_length() == PROMPT.shape[1] - 1  # what was written is not in it


def test_one_token_needs_no_context(dense):
    writer = FilledWriter(dense)
    assert writer.past(PROMPT[:, :1]).get_seq_length() == 0 and len(writer.write(PROMPT[:, :1], 2)) == 3


def test_parts_of_a_step(dense):
    writer = FilledWriter(dense)
    breakdown = decode_breakdown(dense, writer.past(PROMPT), 2)
    assert min(breakdown.linear, breakdown.attention, breakdown.rest) > 0
    assert breakdown.total == breakdown.linear + breakdown.attention + breakdown.rest
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in dense.modules())
