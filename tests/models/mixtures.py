"""Small random mixtures of experts, a model of each family."""

import torch
import transformers as t

from tests.models.tiny import GATED

SMALL = {**GATED, "num_hidden_layers": 2}
ROUTED = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
GROUPED = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 0}
LLAMA4 = {"num_local_experts": 4, "head_dim": 16, "intermediate_size_mlp": 128, "attn_temperature_tuning": False}

FAMILIES = {
    "qwen3_moe": ("Qwen3Moe", {**ROUTED, "num_experts": 4, "head_dim": 16}),
    "qwen2_moe": ("Qwen2Moe", {**ROUTED, "num_experts": 4, "shared_expert_intermediate_size": 64}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "minimax": ("MiniMax", {"num_local_experts": 4, "layer_types": ["full_attention"] * 2}),
    "deepseek_v3": ("DeepseekV3", {**ROUTED, **LATENT, **GROUPED, "num_key_value_heads": 4}),
    "glm4_moe": ("Glm4Moe", {**ROUTED, **GROUPED, "head_dim": 16}),
    "llama4": ("Llama4", LLAMA4),
}


def make(family, **changes):
    torch.manual_seed(0)
    name, own = FAMILIES[family]
    text = "Text" if family == "llama4" else ""
    config = getattr(t, f"{name}{text}Config")(**{**SMALL, **own, **changes})
    return getattr(t, f"{name}ForCausalLM")(config).eval()
