"""What GGUF says of a model beside its weights: its architecture's keys, and the names and order of its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import ExportError


@dataclass(frozen=True)
class Architecture:
    """`name`: GGUF's. `turns_neighbours`: whether its rotary embedding turns neighbours, so that rows of queries and
    keys, which transformers has half a head apart, change places."""

    name: str
    turns_neighbours: bool = False


ARCHITECTURES = {
    "LlamaForCausalLM": Architecture("llama", turns_neighbours=True),
    "MistralForCausalLM": Architecture("llama", turns_neighbours=True),
    "Qwen2ForCausalLM": Architecture("qwen2"),
    "Qwen3ForCausalLM": Architecture("qwen3"),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    classes = config.get("architectures") or ["a model of no stated class"]
    if classes[0] not in ARCHITECTURES:
        raise ExportError(
            f"GGUF is written of {', '.join(ARCHITECTURES)}, and this is {classes[0]}: take --to compressed-tensors"
        )
    _refuse_what_is_lost(config)
    return ARCHITECTURES[classes[0]]


def add_sizes(writer: Any, config: Mapping[str, Any], name: str) -> None:
    """The architecture's keys."""
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_name(name)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(_rope(config).get("rope_theta", config.get("rope_theta", 10000.0)))
    writer.add_rope_dimension_count(head)
    writer.add_key_length(head)
    writer.add_value_length(head)


def row_order(architecture: Architecture, config: Mapping[str, Any], tensor: str) -> Tensor | None:
    """The order of a tensor's rows in the file; None for the one they are in."""
    heads = config["num_attention_heads"]
    if not architecture.turns_neighbours or not tensor.endswith((".q_proj", ".k_proj")):
        return None
    head = config.get("head_dim") or config["hidden_size"] // heads
    count = heads if tensor.endswith(".q_proj") else config.get("num_key_value_heads") or heads
    return torch.arange(count * head).view(count, 2, head // 2).transpose(1, 2).flatten()


def file_names(architecture: Architecture, config: Mapping[str, Any]) -> Callable[[str], str]:
    """From a tensor's name in transformers to that in the file."""
    import gguf

    model = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    names = gguf.get_tensor_name_map(model, config["num_hidden_layers"])

    def name_of(tensor: str) -> str:
        name = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ExportError(f"GGUF's {architecture.name} has no place for {tensor}: take --to compressed-tensors")
        return str(name)

    return name_of


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _refuse_what_is_lost(config: Mapping[str, Any]) -> None:
    kind = _rope(config).get("rope_type", _rope(config).get("type", "default"))
    if kind != "default":
        raise ExportError(f"rotary embeddings of type {kind!r} are not written to GGUF: take --to compressed-tensors")
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if window is not None and window < config["max_position_embeddings"]:
        raise ExportError(
            f"attention over a window of {window} tokens is not written to GGUF: take --to compressed-tensors"
        )
