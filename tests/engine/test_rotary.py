"""Frequencies of every kind of rotary embedding, and both layouts, against transformers' own."""

import pytest
import torch
import transformers as hf
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.cohere.modeling_cohere import CohereRotaryEmbedding, apply_rotary_pos_emb

from tilepress.engine.rotary import Rotary, read_rotary

HEAD_DIM = 64
LONGEST = 4096  # what configs say
SHORT, LONG = [1.0 + i / 8 for i in range(32)], [1.0 + i for i in range(32)]
ORIGINAL = {"original_max_position_embeddings": 512}
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, **ORIGINAL}
KINDS = {
    "linear": {"rope_type": "linear", "factor": 8.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, **BANDS, **ORIGINAL},
    "yarn": {"rope_type": "yarn", "factor": 8.0, **ORIGINAL},
    "yarn, not truncated": {"rope_type": "yarn", "factor": 8.0, "truncate": False, **ORIGINAL},
    "yarn, bounds": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 20.0, "beta_slow": 2.0, **ORIGINAL},
    "yarn, equal bounds": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 1.0, "truncate": False, **ORIGINAL},
    "yarn, attention_factor": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 0.7, **ORIGINAL},
    "yarn, mscale": {"rope_type": "yarn", "factor": 8.0, "mscale": 0.8, "mscale_all_dim": 0.5, **ORIGINAL},
    "yarn, factor from lengths": {"rope_type": "yarn", "factor": None, **ORIGINAL},
    "longrope": LONGROPE,
    "longrope, factor": LONGROPE | {"factor": 4.0},
    "longrope, attention_factor": LONGROPE | {"attention_factor": 1.3},
    "partial": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5},
}


def config(parameters):
    """Made without those checks of transformers' that only warn."""
    made = hf.LlamaConfig(head_dim=HEAD_DIM, max_position_embeddings=LONGEST)
    made.rope_parameters = {"rope_theta": 5e5, **parameters}
    return made


@pytest.mark.parametrize("length", [300, LONGEST, 3 * LONGEST])
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies(kind, length):
    own = config(KINDS[kind])
    expected, attention_factor = ROPE_INIT_FUNCTIONS[own.rope_parameters["rope_type"]](own, seq_len=length)
    rotary = read_rotary(own.rope_parameters, HEAD_DIM, LONGEST)
    torch.testing.assert_close(rotary.frequencies(length), expected, rtol=5e-7, atol=0)
    assert rotary.attention_factor == pytest.approx(attention_factor, rel=1e-12)


def test_interleaved_channels():
    own = hf.CohereConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4)
    x, positions = torch.randn(10, 4, HEAD_DIM, generator=torch.manual_seed(0)), torch.arange(5, 15)
    cos, sin = CohereRotaryEmbedding(own)(x, positions[None])
    heads = x.transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(heads, heads, cos, sin)
    rotary = Rotary(own.rope_parameters["rope_theta"], HEAD_DIM, interleaved=True)
    actual = rotary.rotate(x, positions, rotary.frequencies(16))
    torch.testing.assert_close(actual, expected[0].transpose(0, 1))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"rope_type": "spiral"},
            "rope_type 'spiral' is not known; default, linear, dynamic, llama3, yarn, longrope are",
        ),
        ({"rope_type": "linear"}, "rope_parameters of type 'linear' need factor"),
        ({"rope_type": "linear", "factor": "8"}, "factor of rope_parameters is a positive number, not '8'"),
        ({"rope_type": "linear", "factor": 0}, "factor of rope_parameters is a positive number, not 0"),
        ({"rope_type": "linear", "factor": float("nan")}, "factor of rope_parameters is a positive number, not nan"),
        ({"rope_theta": None}, "rope_parameters of type 'default' need rope_theta"),
        ({"rope_type": "llama3", "factor": 2.0, **BANDS}, "type 'llama3' need original_max_position_embeddings"),
        (KINDS["llama3"] | {"low_freq_factor": 4.0}, "low_freq_factor, 4.0, must be less than high_freq_factor, 4.0"),
        (LONGROPE | {"short_factor": None}, "type 'longrope' need a list short_factor"),
        (LONGROPE | {"short_factor": SHORT[:5]}, "short_factor and long_factor must have 32 numbers each"),
        ({"partial_rotary_factor": 0.33}, "rotary channels are in pairs: 21 of a head cannot be"),
        ({"partial_rotary_factor": 0.01}, "rotary channels are in pairs: 0 of a head cannot be"),
    ],
)
def test_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        read_rotary({"rope_theta": 1e4, **changes}, HEAD_DIM, LONGEST)
