"""How fast linear layers run on packed weights, beside torch's own, in one interleaved run.

Each contestant has enough copies of its weights to fill the last-level cache four times over and goes through them in
turn, so that every call reads its weights from memory, as the layers of a model do.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..formats import Integer, parse_weight
from ..kernels import chosen, cpu_features, linear_int8
from ..tiles import PackedMatrix, pack
from .bandwidth import last_level_cache_bytes, read_bandwidth

_GROUP = 32
_MOST_COPIES = 1000  # of small matrices, whose calls cost more than their weights anyway


@dataclass(frozen=True)
class Contestant:
    """`run(x, index)` multiplies with the copy `index` of its weights, `weight_bytes` large."""

    name: str
    kernel: str
    weight_bytes: int
    copies: int
    run: Callable[[Tensor, int], object]


@dataclass(frozen=True)
class Timing:
    name: str
    kernel: str
    seconds: float
    bytes_per_second: float
    share_of_bandwidth: float


def measure_linear(
    formats: Sequence[str], neurons: int, inputs: int, batch: int, density: float, repeats: int, threads: int | None
) -> list[Timing]:
    """Median time of one layer for each format and each peer, with x float32 [batch, inputs]."""
    weight = torch.randn(neurons, inputs, generator=torch.Generator().manual_seed(0)) / inputs**0.5
    pruned = weight.masked_fill(torch.rand_like(weight) >= density, 0.0)
    contestants = [_ours(name, pruned, density < 1, threads) for name in formats] + _peers(weight)
    x = torch.randn(batch, inputs)
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for index in range(-1, repeats):
        for contestant in contestants:
            start = time.perf_counter()
            contestant.run(x, index % contestant.copies)
            if index >= 0:
                times[contestant.name].append(time.perf_counter() - start)
    limit = read_bandwidth(threads or torch.get_num_threads())
    return [_timing(contestant, statistics.median(times[contestant.name]), limit) for contestant in contestants]


def _timing(contestant: Contestant, seconds: float, limit: float) -> Timing:
    rate = contestant.weight_bytes / seconds
    return Timing(contestant.name, contestant.kernel, seconds, rate, rate / limit)


def _copies(weight_bytes: int) -> int:
    return min(max(2, -(-4 * last_level_cache_bytes() // weight_bytes)), _MOST_COPIES)


def _copy(packed: PackedMatrix) -> PackedMatrix:
    clones: dict[str, Any] = {name: array.clone() for name, array in packed.streams.items()}
    copy = replace(packed, **clones)
    assert copy.native  # made now, not in the first call
    return copy


def _ours(format: str, weight: Tensor, sparse: bool, threads: int | None) -> Contestant:
    if not isinstance(parse_weight(format).element, Integer):
        raise ValueError(f"there are kernels for integer weights so far, not for {format}")
    first = pack(weight, format, sparse=sparse)
    packed = [_copy(first) for _ in range(_copies(first.nbytes))]
    kernel = f"linear_f32_qi8_int/{chosen('linear_f32_qi8_int')}"
    return Contestant(
        format, kernel, first.nbytes, len(packed), lambda x, i: linear_int8(x, packed[i], threads=threads)
    )


def _peers(weight: Tensor) -> list[Contestant]:
    """torch's own layers that run on real kernels here; what torch would only emulate is no peer."""
    peers = [_float_peer(weight, torch.float32)]
    if {"amx_bf16", "avx512_bf16"} & set(cpu_features()):
        peers.append(_float_peer(weight, torch.bfloat16))
    kleidiai = bool(torch.backends.kleidiai.is_available())  # type: ignore[no-untyped-call]
    if kleidiai and "asimddp" in cpu_features() and weight.shape[1] % _GROUP == 0:
        peers.append(_kleidiai_peer(weight))
    return peers


def _float_peer(weight: Tensor, dtype: torch.dtype) -> Contestant:
    size = weight.numel() * dtype.itemsize
    copies = [weight.to(dtype, copy=True) for _ in range(_copies(size))]
    name = f"torch {str(dtype).removeprefix('torch.')}"
    return Contestant(name, "F.linear", size, len(copies), lambda x, i: linear(x.to(dtype), copies[i]))


def _kleidiai_peer(weight: Tensor) -> Contestant:
    """int4 with a bf16 scale for every 32 inputs and dynamic int8 activations, as int4:g32 here."""
    neurons, inputs = weight.shape
    grouped = weight.view(neurons, -1, _GROUP)
    scales = (grouped.abs().amax(-1) / 7).to(torch.bfloat16)
    codes = (grouped / scales.float()[..., None]).round().clamp(-8, 7).add(8).to(torch.uint8).view(neurons, inputs)
    pairs = codes[:, 1::2] << 4 | codes[:, ::2]
    size = neurons * inputs * 9 // 16
    pack_peer, multiply = torch.ops.aten._dyn_quant_pack_4bit_weight, torch.ops.aten._dyn_quant_matmul_4bit
    copies = [pack_peer(pairs, scales, None, _GROUP, inputs, neurons) for _ in range(_copies(size))]
    run = lambda x, i: multiply(x, copies[i], _GROUP, inputs, neurons)  # noqa: E731
    return Contestant("torch KleidiAI int4:g32", "_dyn_quant_matmul_4bit", size, len(copies), run)
