"""Numbers of one layer: its inputs, weights and outputs fit each other, and are those of the block in the middle."""

import pytest
import torch
from torch import nn

from tests.models.tiny import make, text, tokenizer
from tilepress.models.attention_sample import attention_sample


def test_a_layers_numbers():
    model = make("llama")
    sample = attention_sample(model, tokenizer(), text(), tokens=10)
    blocks = model.model.layers
    attention = blocks[len(blocks) // 2].self_attn
    assert torch.equal(sample.weights, attention.q_proj.weight) and sample.activations.shape[0] == 10
    with torch.no_grad():
        torch.testing.assert_close(sample.queries, attention.q_proj(sample.activations))
        torch.testing.assert_close(sample.keys, attention.k_proj(sample.activations))
    ids = torch.tensor([tokenizer()(text()).input_ids[:20]])
    hidden = model(ids, output_hidden_states=True).hidden_states[len(blocks) // 2]
    expected = blocks[len(blocks) // 2].input_layernorm(hidden)[0, 10:].detach()
    torch.testing.assert_close(sample.activations, expected)


def test_too_short_a_text_and_another_kind_of_model():
    with pytest.raises(ValueError, match="the text has 5 tokens, and 20 are needed"):
        attention_sample(make("llama"), tokenizer(), text(5), tokens=10)
    model = make("llama")
    for block in model.model.layers:
        block.self_attn.k_proj = nn.Identity()
    with pytest.raises(ValueError, match="no dense q_proj and k_proj"):
        attention_sample(model, tokenizer(), text(), tokens=10)
