"""A model that another tool has quantised, packed with the codes and scales that it has: nothing is rounded again.

Where none of our formats holds a layer's grid, that layer is rounded, and its entry says why and how far it moved.
Layers that the other tool left as they were stay dense.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

import torch
from torch import nn

from ..compression import WeightPlan, compress_weight, decompress_weight
from ..compression.threads import one_thread
from ..formats import Integer, Quantized, WeightFormat
from ..nn import PackedLinear
from ..tiles import pack_codes
from .blocks import REST, find_blocks, linear_layers, output_layer
from .compress import untie
from .disk_storage import DiskStorage
from .left_dense import dense_layers
from .linear_form import replace_layer
from .quantized import Held, SourceWeight
from .recipe import Recipe
from .registration import check_cache_of
from .share import Share, share_of_layers
from .storage import Layer, Progress
from .tensor_types import layer_activations

LEFT = "it is not quantised in the checkpoint"


class Importing:
    """The stages of one model, in order. `quantised`: the layers that another tool has quantised; `dense`: the others,
    which stay as they are."""

    def __init__(self, model: nn.Module, recipe: Recipe, quantised: Collection[str], storage: DiskStorage) -> None:
        check_cache_of(model, recipe.model_dump())
        layers = linear_layers(model)
        self.model, self.recipe, self.storage = model, recipe, storage
        self.packed = [name for name in layers if name in quantised]
        self.blocks = list(find_blocks(model))
        self.activations = layer_activations(model, recipe.activations.format, recipe.activations.types)
        left = dense_layers(model, self.packed, None)
        self.dense = [replace(one, why=LEFT) if one.name in layers else one for one in left]
        self.share: Share = share_of_layers(model, self.packed, self.dense)
        self.output = output_layer(model)
        self.unties = self.output in self.packed

    def run(self, progress: Callable[[Progress], None] = lambda _: None) -> list[Layer]:
        """All quantised layers packed, in order."""
        layers: list[Layer] = []
        stages = [*self.blocks, REST]
        for done, stage in enumerate(stages):
            progress(Progress(done, len(stages), None))
            finished = self.storage.finished(stage)
            layers += self._import_stage(stage) if finished is None else finished
        progress(Progress(len(stages), len(stages), 0.0))
        return layers

    def _import_stage(self, stage: str) -> list[Layer]:
        names = self._names(stage)
        with torch.no_grad(), one_thread():
            layers = [self._import_layer(name) for name in names]
            self.storage.fetch(stage)
            if self.output in names:
                untie(self.model)
        self.storage.finish(stage, layers)
        return layers

    def _names(self, stage: str) -> list[str]:
        """The quantised layers of a stage."""
        inside = tuple(f"{block}." for block in self.blocks)
        if stage == REST:
            return [name for name in self.packed if not name.startswith(inside)]
        return [name for name in self.packed if name.startswith(f"{stage}.")]

    def _import_layer(self, name: str) -> Layer:
        weight, activations = self.storage.source_weight(name), self.activations[name]
        assert weight is not None
        quantized, format, error, rounding = rounded(name, weight)
        _refuse_activations(name, format, activations)
        matrix = pack_codes(quantized, format)
        bias = linear_layers(self.model)[name].bias
        replace_layer(self.model, name, PackedLinear(matrix, bias, activations))
        streams = {stream: str(array.dtype).removeprefix("torch.") for stream, array in matrix.streams.items()}
        size = matrix.shape, matrix.nbytes, matrix.bits_per_weight
        return Layer(name, str(format), 1.0, error, *size, activations, streams, rounding=rounding)


def rounded(name: str, weight: SourceWeight) -> tuple[Quantized, WeightFormat, float, str]:
    """Codes, their format, the relative error, and what was rounded again, if it was."""
    if isinstance(weight, Held):
        return weight.quantized, weight.format, 0.0, ""
    try:
        made = compress_weight(weight.weight, WeightPlan(weight.nearest))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    moved = (decompress_weight(made, weight.nearest) - weight.weight).abs().max()
    said = f"{weight.why}: rounded to {weight.nearest}, weights moved by {float(moved):.2g} at most"
    return made.quantized, weight.nearest, made.error, said


def _refuse_activations(name: str, format: WeightFormat, activations: str) -> None:
    floats = activations in ("float", "bf16")
    if not floats and not isinstance(format.element, Integer):
        raise ValueError(
            f"{activations} activations need integer weights, and {name} comes as {format}: leave activations as they "
            "are, or round it to integers, --weights int8:g32 say"
        )
