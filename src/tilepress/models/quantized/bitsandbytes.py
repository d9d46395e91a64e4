"""Checkpoints of bitsandbytes: 4 bits by a table (NF4, FP4), and 8 bits with one scale per neuron.

weight                uint8 [neurons·inputs/2, 1]: codes row after row, high half first
weight.absmax         float32, one per block of 64 weights or so; or uint8 codes of those, with
weight.nested_absmax, weight.nested_quant_map       scale · table[code] + nested_offset
weight.quant_map      float32 [16]
weight.quant_state.bitsandbytes__nf4                JSON as bytes: shape, blocksize, nested_blocksize, nested_offset

weight, SCB           int8 [neurons, inputs], float32 [neurons]: code · SCB / 127
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import gcd, isfinite, prod
from typing import Any

import torch
from torch import Tensor

from ...formats import NF4, SIGNED, Scaling, Table, WeightFormat
from ..embedded import ModelUnavailableError
from .fields import high_nibble_first
from .grids import group_of, is_a_group, scaled
from .layer import AGAIN, Checkpoint, Files, Parts, QuantizedLayer, SourceWeight, Unheld, finite

STATES = {"nf4": "weight.quant_state.bitsandbytes__nf4", "fp4": "weight.quant_state.bitsandbytes__fp4"}
LONGEST_STATE = 4096  # bytes; one has 200
LARGEST_INT8 = 127
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """`shape`: [neurons, inputs]. `block`: weights per scale; `nested_block`: scales per scale of theirs."""

    shape: tuple[int, int]
    block: int
    nested_block: int
    offset: float


def read_bitsandbytes(config: Mapping[str, Any], files: Files) -> Checkpoint:
    layers = {name: _four_bits(files.parts(name), part) for part in STATES.values() for name in files.layers(part)}
    eight = files.layers("SCB")
    layers |= {name: _eight_bits(files.parts(name)) for name in eight}
    dropped = {f"{name}.weight_format": "it says how a GPU has the weights" for name in eight}
    return Checkpoint(layers, {name: why for name, why in dropped.items() if name in files.stored})


def _four_bits(parts: Parts, state_part: str) -> QuantizedLayer:
    (length,) = parts.take(state_part, "U8", (None,))
    if length > LONGEST_STATE:
        raise ModelUnavailableError(f"{parts.layer}.{state_part} has {length} bytes, more than is read: {AGAIN}")
    state = _state(parts.layer, parts.read(state_part))
    weights = prod(state.shape)
    parts.take("weight", "U8", (-(-weights // 2), 1))
    parts.take("weight.quant_map", "F32", (16,))
    blocks = -(-weights // state.block)
    if parts.type("weight.absmax") == "U8":
        parts.take("weight.nested_absmax", "F32", (-(-blocks // state.nested_block),))
        parts.take("weight.nested_quant_map", "F32", (256,))
    parts.take("weight.absmax", ("F32", "U8"), (blocks,))
    return parts.layer_of(state.shape, partial(_read_four_bits, parts.layer, state))


def _eight_bits(parts: Parts) -> QuantizedLayer:
    neurons, inputs = parts.take("weight", "I8", (None, None))
    parts.take("SCB", "F32", (neurons,))
    return parts.layer_of((neurons, inputs), partial(_read_eight_bits, parts.layer))


def _state(name: str, data: Tensor) -> State:
    try:
        stated = json.loads(bytes(data.tolist()))
        neurons, inputs = stated["shape"]
        numbers = (neurons, inputs, stated["blocksize"], stated.get("nested_blocksize", 256))
        offset = float(stated.get("nested_offset", 0.0))
        if not all(type(number) is int and number > 0 for number in numbers) or not isfinite(offset):
            raise ValueError("its numbers make no sense")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelUnavailableError(f"the state of {name} cannot be understood ({error!r}): {AGAIN}") from error
    weights = neurons * inputs  # a block is no larger than that: what is repeated for each weight must fit memory
    return State((neurons, inputs), min(numbers[2], weights), min(numbers[3], weights), offset)


def _read_four_bits(name: str, state: State, tensors: Tensors) -> SourceWeight:
    neurons, inputs = state.shape
    codes = high_nibble_first(tensors["weight"].flatten())[: neurons * inputs].view(neurons, inputs)
    blocks, group = _block_scales(name, state, tensors), gcd(state.block, inputs)
    owners = torch.arange(0, neurons * inputs, group) // state.block  # the block of each group
    scales = blocks[owners].view(neurons, inputs // group)
    table = _table(name, tensors["weight.quant_map"])
    if is_a_group(group_of(group, inputs)):
        return scaled(table, codes, scales, group_of(group, inputs))
    weight = torch.tensor(table.values)[codes.long()] * scales.repeat_interleave(group, 1)
    why = f"its blocks of {state.block} weights do not end with rows of {inputs}"
    return Unheld(weight, why, WeightFormat(NF4, Scaling(64, "bf16")))


def _block_scales(name: str, state: State, tensors: Tensors) -> Tensor:
    """float32 [blocks]."""
    absmax = tensors["weight.absmax"]
    if absmax.dtype == torch.uint8:
        nested = tensors["weight.nested_absmax"].repeat_interleave(state.nested_block)[: len(absmax)]
        absmax = tensors["weight.nested_quant_map"][absmax.long()] * nested + state.offset
    return finite(f"{name}.weight.absmax", absmax)


def _table(name: str, values: Tensor) -> Table:
    if torch.equal(values, torch.tensor(NF4.values)):
        return NF4
    try:
        return Table("lut4:bitsandbytes", 4, tuple(values.tolist()))
    except ValueError as error:
        raise ModelUnavailableError(f"{name}.weight.quant_map is no table ({error}): {AGAIN}") from error


def _read_eight_bits(name: str, tensors: Tensors) -> SourceWeight:
    scales = finite(f"{name}.SCB", tensors["SCB"]).unsqueeze(1) / LARGEST_INT8
    return scaled(SIGNED[-1], tensors["weight"].view(torch.uint8), scales, None)
