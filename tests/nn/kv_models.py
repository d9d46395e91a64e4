"""Small models of several families for tests of KV caches, and their logits through a cache."""

import torch
import transformers as hf
from tests.models.tiny import GATED

SIZES = {**GATED, "head_dim": 32, "max_position_embeddings": 512, "num_hidden_layers": 2, "initializer_range": 0.1}
ALTERNATING = ["sliding_attention", "full_attention"]

FAMILIES = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES)),
    "multi-query": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, "num_key_value_heads": 1})),
    "multi-head": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, "num_key_value_heads": 4})),
    "sliding": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SIZES, sliding_window=20)),
    "mixed": lambda: hf.Qwen2ForCausalLM(
        hf.Qwen2Config(**{**SIZES, "hidden_size": 128}, use_sliding_window=True, sliding_window=20, max_window_layers=1)
    ),
    "qk-norm": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES)),
    "soft-capped": lambda: hf.Gemma2ForCausalLM(
        hf.Gemma2Config(
            **SIZES,
            attn_logit_softcapping=1.5,
            query_pre_attn_scalar=16,
            sliding_window=20,
            attn_implementation="eager",  # what transformers 5.17 takes of itself does not cap
        )
    ),
    "gemma3": lambda: hf.Gemma3ForCausalLM(
        hf.Gemma3TextConfig(**SIZES | {"head_dim": 256}, sliding_window=20, layer_types=ALTERNATING)
    ),
    "sinks": lambda: hf.GptOssForCausalLM(
        hf.GptOssConfig(**SIZES, num_local_experts=2, num_experts_per_tok=2, sliding_window=20)
    ),
}

PACKED_FORMATS = ["bfp4", "bfp4n+rotate", "sparse:k30,v50", "bfp4+sparse:k30,v50"]


def make(family="llama"):
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    for name, sinks in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(sinks, 2.0)
    return model


def prompt(length=40, batch=1, seed=0):
    return torch.randint(3, 90, (batch, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def logits(model, tokens, cache, sizes=None, mask=None):
    """Logits of all tokens, given to the model in pieces."""
    out, at = [], 0
    for piece in tokens.split(sizes or tokens.shape[1], 1):
        at += piece.shape[1]
        seen = None if mask is None else mask[:, :at]
        out.append(model(piece, past_key_values=cache, attention_mask=seen).logits)
    return torch.cat(out, 1)


def close(actual, expected, tolerance):
    return (actual - expected).norm() <= tolerance * expected.norm()
