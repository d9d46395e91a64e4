"""A model made ready for studies of its activations: weights compressed or as they come, here or on another device."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from ..compression.search import Products
from ..formats import BFP, Anda, AndaSearch, parse_activations
from ..nn.emulation import Named, round_inputs, roundings, set_activations
from ..nn.kv_emulation import emulate_kv
from .blocks import all_linear_layers, output_layer
from .checkpoint_checks import NOTHING, Allowed
from .compress import compress_model
from .device import CPU, find_device
from .gguf.tensors import open_weights
from .loading import Announce, LoadedModel, is_compressed, load_model, model_folder, say
from .recipe import Activations, Recipe, read_recipe
from .registration import cache_of, packed_layers, unpack_layers
from .storage import Progress
from .tensor_types import LayerType, classify, layer_formats, products


@dataclass(frozen=True, eq=False)
class StudyModel:
    """`model`: with activations as they are; `types` of the inputs of its layers and the `products` they take part in.

    recipe: how its weights were compressed, None if they are as they come. seconds: what that took, if it was now.
    fingerprint: of the files it came from.
    """

    model: Any
    tokenizer: Any
    types: dict[str, LayerType]
    products: Products
    recipe: Recipe | None
    seconds: float | None
    fingerprint: list[str]


def load_study_model(
    name: str,
    recipe: Recipe | None = None,
    device: str = "cpu",
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    allowed: Allowed = NOTHING,
    announce: Announce = say,
) -> StudyModel:
    """The model called `name`, see `model_folder`: a compressed one as it is, another with its weights compressed by
    `recipe`, in memory, or as they come without one. Packed layers are unpacked: on some processors they compute floats
    with weights rounded to bf16, and a study must give the same everywhere."""
    place = find_device(device)
    folder = model_folder(name, announce, trust_remote_code=allowed.trust_remote_code)
    if is_compressed(folder) and recipe is not None:
        raise ValueError(f"{name} is compressed already: leave its weights as they are, or name what it was made from")
    loaded = load_model(name, dtype=torch.float32, announce=announce, **asdict(allowed))
    model, seconds = loaded.model, None
    if is_compressed(folder):
        recipe = read_recipe(model.config.quantization_config.recipe)
    elif recipe is not None:
        start = time.monotonic()
        chosen = _weights_only(recipe)
        compress_model(model, chosen, tokenizer=loaded.tokenizer, device=device, progress=progress)
        seconds = time.monotonic() - start
    mapping = recipe.activations.types if recipe is not None else {}
    types = classify(model, mapping)
    counted = products(model, types)
    model, files = unpack_layers(model).to(place), open_weights(folder).fingerprint()
    return StudyModel(model, loaded.tokenizer, types, counted, recipe, seconds, files)


def _weights_only(recipe: Recipe) -> Recipe:
    return recipe.model_copy(update={"activations": Activations(types=recipe.activations.types)})


def on_device(loaded: LoadedModel, device: str, activations: str | None = None) -> LoadedModel:
    """The model there, with activations in the format given or as it came. Packed layers compute on the CPU alone:
    elsewhere they are unpacked, and what they round is rounded by emulation."""
    place = find_device(device)
    if place != CPU:
        own = {name: layer.activations for name, layer in packed_layers(loaded.model)}
        loaded = replace(loaded, model=unpack_layers(loaded.model).to(place))
        if not activations:
            round_inputs(loaded.model, roundings(own))
    if activations:
        round_activations(loaded.model, activations)
    return loaded


def round_cache(model: nn.Module, format: str | None, smoothing: str = "none") -> None:
    """Let `model` attend from now on as if its cache were in `format`, by emulation; if not given, in what a
    compressed model remembers, else as it comes."""
    config = getattr(model.config, "quantization_config", None)
    remembered = cache_of(getattr(config, "recipe", {}))
    if format:
        emulate_kv(model, format, smoothing)
    elif remembered:
        emulate_kv(model, *remembered)


def round_activations(model: nn.Module, format: str) -> None:
    """Round the activations of `model` from now on, in every linear layer but the output layer, natively where packed
    layers can and by emulation elsewhere. The format: fp, bf16, int8, bfp:gN:mN or Anda's."""
    parsed = parse_activations(format)
    if isinstance(parsed, AndaSearch):
        raise ValueError(f"activations are rounded to bf16, int8, bfp:gN:mN or anda:7,7,6,5, not {format}")
    for _, layer in packed_layers(model):
        layer.set_activations("float")
    formats: Mapping[str, BFP | Named] = {}
    if isinstance(parsed, Anda):
        formats = layer_formats(classify(model), parsed)
    elif parsed != "fp":
        formats = {name: parsed for name in all_linear_layers(model) if name != output_layer(model)}
    set_activations(model, formats)
