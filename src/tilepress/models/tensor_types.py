"""Anda's four types of activations in a model: which linear layer takes which.

    qkv   inputs of the query, key and value projections, fused or not
    o     inputs of attention's output projection
    u     inputs of the gate and up projections
    d     inputs of the down projection

Layers are known by the last part of their name, as the families of transformers call them; other names a user maps:
{"*.mlp.wi": "u", "*.router": "fp"}, patterns over whole names, of which the last that fits counts; `fp` leaves the
inputs as they are. What lies outside the decoder blocks, the output layer above all, is of no type and stays so.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

from torch import nn

from ..formats import BFP, TENSOR_TYPES, Anda, AndaSearch, TensorType, parse_activations
from .blocks import all_linear_layers, find_blocks, output_layer

LayerType = Literal["qkv", "o", "u", "d", "fp"]

NAMES: dict[TensorType, tuple[str, ...]] = {
    "qkv": ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "Wqkv", "wq", "wk", "wv"),
    "o": ("o_proj", "out_proj", "attention.dense", "self_attention.dense", "self_attn.dense", "wo"),
    "u": ("gate_proj", "up_proj", "gate_up_proj", "fc1", "fc_in", "dense_h_to_4h", "w1", "w3"),
    "d": ("down_proj", "fc2", "fc_out", "dense_4h_to_h", "w2"),
}


class TensorTypeError(ValueError):
    """A layer whose inputs are of none of the four types, as far as anybody has said."""


def classify(model: nn.Module, mapping: Mapping[str, LayerType] | None = None) -> dict[str, LayerType]:
    """Name → type of the inputs, for each linear layer in a decoder block and each that `mapping` has a pattern for."""
    mapping = mapping or {}
    inside = tuple(f"{block}." for block in find_blocks(model))
    output, types = output_layer(model), dict[str, LayerType]()
    for name in all_linear_layers(model):
        kind = _mapped(name, mapping)
        if kind is None and (name.startswith(inside) if inside else name != output):
            kind = _known(name)
            if kind is None:
                raise TensorTypeError(_unknown(name))
        if kind is not None:
            types[name] = kind
    if not any(kind != "fp" for kind in types.values()):
        raise TensorTypeError(
            f"{type(model).__name__} has no linear layer that takes one of Anda's tensor types "
            f"({', '.join(TENSOR_TYPES)}): take bfp:gN:mN for all layers alike, or map its layers' names to types"
        )
    return types


def layer_activations(model: nn.Module, format: str, mapping: Mapping[str, LayerType] | None = None) -> dict[str, str]:
    """Name → activations of every linear layer as `kernels.linear` calls them, for the format of a recipe.

    Under Anda, layers of no type compute with floats; so do all, as long as mantissas are still to be searched for.
    """
    parsed = parse_activations(format)
    layers = all_linear_layers(model)
    if isinstance(parsed, Anda | AndaSearch):
        types = classify(model, mapping)
        formats = layer_formats(types, parsed) if isinstance(parsed, Anda) else {}
        return {name: str(formats.get(name, "float")) for name in layers}
    return dict.fromkeys(layers, "float" if parsed == "fp" else str(parsed))


def layer_formats(types: Mapping[str, LayerType], format: Anda) -> dict[str, BFP]:
    """Name → format of the inputs of each layer that has a type."""
    return {name: format.formats[kind] for name, kind in types.items() if kind != "fp"}


def products(model: nn.Module, types: Mapping[str, LayerType]) -> tuple[int, int, int, int]:
    """Products of an activation and a weight that one token takes, for each tensor type: weights of BOPs."""
    layers = all_linear_layers(model)
    counts = dict.fromkeys(TENSOR_TYPES, 0)
    for name, kind in types.items():
        if kind != "fp":
            counts[kind] += layers[name].in_features * layers[name].out_features
    qkv, o, u, d = counts.values()
    return qkv, o, u, d


def _known(name: str) -> LayerType | None:
    """By the name's last part, or its last two where the last alone says too little."""
    parts = name.split(".")
    ends = {parts[-1], ".".join(parts[-2:])}
    return next((kind for kind, names in NAMES.items() if ends & set(names)), None)


def _mapped(name: str, mapping: Mapping[str, LayerType]) -> LayerType | None:
    fitting = [kind for pattern, kind in mapping.items() if fnmatchcase(name, pattern)]
    return fitting[-1] if fitting else None


def _unknown(name: str) -> str:
    pattern = "*." + name.rpartition(".")[2]
    return (
        f"nobody has said which tensor type the layer {name} takes: map its name to one of {', '.join(TENSOR_TYPES)}, "
        f'or to fp to leave its inputs as they are, for example [activations.types] "{pattern}" = "u" in a recipe'
    )
