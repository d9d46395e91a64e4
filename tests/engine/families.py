"""A small random model of every family that the engine describes, some with several kinds of positions."""

import torch
import transformers as hf

VOCABULARY = 96
LENGTH = 45  # tokens of the sequences in tests
WINDOW = 8
ORIGINAL = 16  # the length that positions were scaled from
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOWED = {"sliding_window": WINDOW}
ALTERNATING = ["sliding_attention", "full_attention"] * 2
ROUTED = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 2.0, "beta_slow": 0.1}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.2, 1.5], "long_factor": [1.0, 2.0, 6.0]}

# Name → what the class is called, and what its config has of its own.
FAMILIES = {
    "llama": ("Llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 32}),
    "llama-3": (
        "Llama",
        {"rope_parameters": LLAMA3 | {"rope_theta": 5e2, "original_max_position_embeddings": ORIGINAL}},
    ),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
    "llama-dynamic": (
        "Llama",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}, "max_position_embeddings": 16},
    ),
    "mistral": ("Mistral", WINDOWED | {"head_dim": 32}),
    "qwen2": ("Qwen2", WINDOWED | {"use_sliding_window": True, "max_window_layers": 2}),
    "qwen2-yarn": (
        "Qwen2",
        {"rope_parameters": YARN | {"rope_theta": 1e4, "original_max_position_embeddings": ORIGINAL}},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32, "attention_bias": True}),
    "gemma2": (
        "Gemma2",
        WINDOWED
        | {"head_dim": 32, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 1.0, "query_pre_attn_scalar": 8},
    ),
    "gemma3": (
        "Gemma3",
        WINDOWED
        | {
            "head_dim": 32,
            "layer_types": ALTERNATING,
            "query_pre_attn_scalar": 8,
            "final_logit_softcapping": 2.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e3},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e1},
            },
        },
    ),
    "phi3": ("Phi3", WINDOWED),
    "phi3-longrope": (
        "Phi3",
        {
            "num_attention_heads": 8,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": ORIGINAL,
            "rope_parameters": LONGROPE | {"rope_theta": 1e2},
        },
    ),
    "olmo2": ("Olmo2", {}),
    "smollm3": ("SmolLM3", WINDOWED | {"use_sliding_window": True, "no_rope_layers": [1, 0, 1, 0]}),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.4,
            "residual_multiplier": 0.3,
            "logits_scaling": 5.0,
        },
    ),
    "gpt_oss": (
        "GptOss",
        WINDOWED
        | {
            "head_dim": 32,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "swiglu_limit": 0.5,
            "rope_parameters": YARN
            | {"rope_theta": 1e4, "truncate": False, "original_max_position_embeddings": ORIGINAL},
        },
    ),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3Moe", ROUTED | {"head_dim": 32, "num_experts": 4, "mlp_only_layers": [1]}),
    "qwen3_moe-normed": ("Qwen3Moe", ROUTED | {"num_experts": 4, "norm_topk_prob": True, "decoder_sparse_step": 2}),
}


def config(family, **changes):
    name, own = FAMILIES[family]
    text = "Text" if name == "Gemma3" else ""
    return getattr(hf, f"{name}{text}Config")(**{**SIZES, **own, **changes})


def make(family, **changes):
    """A model in float32, whose every parameter counts: norms, biases and sinks are random, too."""
    torch.manual_seed(0)
    model = getattr(hf, f"{FAMILIES[family][0]}ForCausalLM")(config(family, **changes)).eval()
    model.set_attn_implementation("eager")
    model.set_experts_implementation("eager")
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 or "bias" in name or "router" in name or name.endswith("gate.weight"):
            torch.nn.init.normal_(parameter, parameter.mean().item(), 0.3)
    for module in model.modules():
        if hasattr(module, "limit"):  # of GPT-OSS: transformers 5.17 reads it from no configuration
            module.limit = model.config.swiglu_limit
    return model.requires_grad_(False)


def tokens(length=LENGTH, seed=1):
    return tuple(torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist())


def logits(model, tokens):
    """transformers' own [tokens, vocabulary], all tokens at once."""
    return model(torch.tensor([tokens]), use_cache=False).logits[0]
