"""What vLLM asks of a quantised layer: places for its arrays, what to do once they are there, and its products."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

from ..nn import PackedEmbedding, PackedLinear
from ..nn.packed import STREAMS, PackedModule
from .operators import JoinedLinear, Table
from .stated import INSTEAD, part_number

Streams = Mapping[str, torch.dtype]
ARRAYS = ("weight", *STREAMS)


class PackedLinearMethod(LinearMethodBase):
    """A layer of vLLM's that is one packed layer or several: `names`, with what the config says of each."""

    def __init__(self, names: Sequence[str], stated: Sequence[Mapping[str, Any]]) -> None:
        self.names, self.stated = names, stated

    def create_weights(
        self,
        layer: nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        _refuse_division(input_size_per_partition, output_partition_sizes, input_size, output_size)
        sizes = output_partition_sizes if len(self.names) > 1 else [_rows(layer, output_partition_sizes)]
        parts = [self._part(*each, input_size) for each in zip(self.stated, sizes, strict=True)]
        _await(layer, parts)

    def process_weights_after_loading(self, layer: Any) -> None:
        layer.tilepress = JoinedLinear(_complete(layer, self.names))

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        y: Tensor = layer.tilepress(x)
        return y if bias is None else y + bias

    def _part(self, stated: Mapping[str, Any], rows: int, cols: int) -> PackedLinear:
        plain = nn.Linear(cols, rows, bias=False, device="meta")
        return PackedLinear.awaiting(plain, _types(stated), stated["activations"])


class PackedEmbeddingMethod(QuantizeMethodBase):
    """The packed table of tokens called `name`. `output`: it as output layer, once it is loaded, where the recipe has
    one matrix for both."""

    def __init__(self, name: str, stated: Mapping[str, Any]) -> None:
        self.name, self.stated = name, stated
        self.output: JoinedLinear | None = None

    def create_weights(
        self,
        layer: nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        _refuse_division(input_size_per_partition, output_partition_sizes, input_size, output_size)
        rows = _rows(layer, output_partition_sizes)
        plain = nn.Embedding(rows, input_size, device="meta", dtype=params_dtype)
        _await(layer, [PackedEmbedding.awaiting(plain, _types(self.stated))])

    def process_weights_after_loading(self, layer: Any) -> None:
        (table,) = _complete(layer, [self.name])
        layer.tilepress = Table(table)
        if self.stated.get("tied"):
            self.output = JoinedLinear([PackedLinear(table.matrix, activations=self.stated["activations"])])

    def embedding(self, layer: Any, input_: Tensor) -> Tensor:
        rows: Tensor = layer.tilepress(input_)
        return rows

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Logits, in models that ask the embedding itself for them."""
        y: Tensor = self.tied_output()(x)
        return y if bias is None else y + bias

    def tied_output(self) -> JoinedLinear:
        if self.output is None:
            raise ValueError(f"vLLM computes logits with {self.name}, which is not the output layer's: {INSTEAD}")
        return self.output


class TiedOutputMethod(LinearMethodBase):
    """The output layer that computes with the matrix of a packed table."""

    def __init__(self, embedding: PackedEmbeddingMethod) -> None:
        self.embedding = embedding

    def create_weights(self, layer: nn.Module, *_: Any, **__: Any) -> None:
        """It has none of its own."""

    def process_weights_after_loading(self, layer: Any) -> None:
        """After the embedding's: vLLM goes through modules in the order in which models name them."""
        layer.tilepress = self.embedding.tied_output()

    def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        y: Tensor = layer.tilepress(x)
        return y if bias is None else y + bias


def _rows(layer: nn.Module, sizes: Sequence[int]) -> int:
    """Of the layer; vLLM counts tables of tokens, and output layers, with padding."""
    return int(getattr(layer, "org_vocab_size", sum(sizes)))


def _refuse_division(inputs: int, outputs: Sequence[int], all_inputs: int, all_outputs: int) -> None:
    if (inputs, sum(outputs)) != (all_inputs, all_outputs):
        raise ValueError("packed layers are not divided among processes: leave tensor_parallel_size at 1")


def _types(stated: Mapping[str, Any]) -> Streams:
    return {name: getattr(torch, dtype) for name, dtype in stated["streams"].items()}


def _await(layer: Any, parts: Sequence[PackedModule]) -> None:
    """Empty parameters, whose loaders hand what vLLM reads to `parts`."""
    layer.awaiting = tuple(parts)  # a tuple hides them from torch, and so from vLLM's list of what is to be loaded
    for name in ARRAYS:
        arrays = [array for part in parts if (array := part._buffers.get(name)) is not None]
        if arrays:
            place: Any = nn.Parameter(torch.empty(0, dtype=arrays[0].dtype), requires_grad=False)
            place.weight_loader = partial(_take, layer.awaiting, name)
            layer.register_parameter(name, place)


def _take(
    parts: Sequence[PackedModule], name: str, _: nn.Parameter, loaded: Tensor, shard: str | int | None = None
) -> None:
    parts[part_number(shard)]._buffers[name] = loaded


def _complete(layer: Any, names: Sequence[str]) -> Sequence[Any]:
    """The layer's parts, whole and checked; what awaited their arrays is gone."""
    parts: Sequence[Any] = layer.awaiting
    for part, name in zip(parts, names, strict=True):
        part.complete(name)
    for name in ("awaiting", *ARRAYS):
        if hasattr(layer, name):
            delattr(layer, name)
    return parts
