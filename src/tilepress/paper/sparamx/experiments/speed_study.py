"""Decoding with models of a real one's shape, and linear layers, kernel by kernel on this machine: what the studies of
SparAMX' paper are made of."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.utils import logging

from ....bench import linear, model
from ....bench.model import Entrant, Writer
from ....bench.model_peers import best_dtype
from ....bench.random_models import FilledWriter, packed_model, random_model
from ....bench.shapes import Shape
from ....kernels import active_isa, forced_isa, linear_kernel, supported_isas
from ....models import LoadedModel, ModelUnavailableError, load_model
from ....nn.model_kv_cache import kv_cache
from ....simulate.layers import find_transformer
from ....tiles import pack
from ...item import NotPossible, Track
from .settings import Decoding, joined, numbers

UNIT, VECTOR = "amx", "avx512_bf16"  # instruction sets by the names of ours
STEP = 16  # the vocabulary that a few layers get is a multiple of it
AVX = (VECTOR, "avx512_vbmi2", "avx512_vnni", "avx512", "avx2")
ON_X86 = {UNIT: "AMX", **dict.fromkeys(AVX, "AVX")}  # by the paper's names


def config_of(name: str, millions: int, positions: int) -> LlamaConfig:
    """Of the first layers of the model called `name`."""
    transformer = find_transformer(name)
    if not transformer.gated:
        raise ValueError(f"{name} has not Llama's layers, and only such are timed")
    layers = min(transformer.layers, max(1, millions * 10**6 * transformer.layers // transformer.weights))
    return LlamaConfig(
        hidden_size=transformer.hidden,
        intermediate_size=transformer.feed_forward,
        num_attention_heads=transformer.heads,
        num_key_value_heads=transformer.kv_heads,
        head_dim=transformer.head_size,
        num_hidden_layers=layers,
        vocab_size=-(-transformer.vocabulary * layers // (transformer.layers * STEP)) * STEP,
        max_position_embeddings=positions,
        tie_word_embeddings=False,
    )


class Forced:
    """A writer whose kernels are of one instruction set."""

    def __init__(self, writer: Writer, isa: str | None) -> None:
        self.writer, self.isa, self.bytes_read = writer, isa, writer.bytes_read

    def write(self, prompt: Tensor, tokens: int) -> list[float]:
        with forced_isa(self.isa):
            return self.writer.write(prompt, tokens)


def kernel_sets() -> dict[str, str | None]:
    """Kernels by the paper's names, AMX and AVX, or by what they are called here → the instruction set to force."""
    best = active_isa()
    if best == UNIT and VECTOR in supported_isas():
        return {"AMX": None, "AVX": VECTOR}
    return {ON_X86.get(best, best): None}


def unit_note() -> str:
    return "" if "AMX" in kernel_sets() else "no AMX here"


def stock() -> str:
    """What torch computes with here, as a peer's name."""
    return f"torch {str(best_dtype()).removeprefix('torch.')}"


def kernel_note(contestant: str, inputs: int, batch: int = 1) -> str:
    """The kernel that runs `contestant`, and that there is no AMX where there is none."""
    packed = _tile(contestant, inputs)
    activations = linear.parse_contestant(contestant).activations
    return joined(linear_kernel(packed, batch, best_dtype(), activations=activations), unit_note())


def _tile(contestant: str, inputs: int) -> Any:
    one, weight = linear.parse_contestant(contestant), torch.randn(STEP, inputs)
    return pack(
        weight, one.format, mask=None if one.density == 1 else weight.abs() > weight.abs().quantile(1 - one.density)
    )


@dataclass(frozen=True, eq=False)
class RandomModel:
    """Layers of the model called `name` in torch's best type, and packed copies of them, each made once."""

    name: str
    config: LlamaConfig
    dense: Any
    _copies: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, millions: int, positions: int) -> "RandomModel":
        config = config_of(name, millions, positions)
        return cls(name, config, random_model(config, best_dtype()))

    @property
    def note(self) -> str:
        whole, here = find_transformer(self.name).layers, self.config.num_hidden_layers
        return "" if here == whole else f"{here} of {whole} layers"

    def stock(self) -> Entrant:
        """As transformers runs it."""
        return Entrant(stock(), 0, lambda _: FilledWriter(self.dense))

    def packed(self, contestant: str, isa: str | None = None, name: str = "") -> Entrant:
        return Entrant(name or contestant, 0, partial(self._load, contestant, isa), is_peer=False)

    def _load(self, contestant: str, isa: str | None, threads: int) -> Writer:
        if contestant not in self._copies:
            self._copies[contestant] = packed_model(self.dense, linear.parse_contestant(contestant), threads)
        return Forced(FilledWriter(self._copies[contestant]), isa)

    def race(self, track: Track, what: str, entrants: Sequence[Entrant], decoding: Decoding, **more: Any) -> "Rates":
        """`more` settings of `bench.model` than `decoding` gives."""
        depth, written = decoding.depth, decoding.written
        settings = model.Settings(prompt=depth, tokens=written, repeats=decoding.repeats, **more)
        return race(track, what, entrants, settings, self.config.vocab_size)


@dataclass(frozen=True)
class Rates:
    """`decode`: (entrant, batch) → tokens a second; `refused`: peer → why it is not there."""

    decode: Mapping[tuple[str, int], float]
    refused: Mapping[str, str]

    def gain(self, ours: str, theirs: str, batch: int = 1) -> float:
        return self.decode[ours, batch] / self.decode[theirs, batch]


def load_here(name: str) -> LoadedModel:
    """The model called `name`, with its own weights in torch's best type; NotPossible where it is not here."""
    logging.disable_progress_bar()  # ours is enough
    try:
        return load_model(name, dtype=best_dtype())
    except ModelUnavailableError as error:
        raise NotPossible(str(error)) from error


def cache_entrants(of: RandomModel, caches: Mapping[str, str], repeated: str) -> list[Entrant]:
    """Stock torch, the same by its plain attention, called `repeated`, and name → format of caches of ours, all with
    the same dense weights."""
    dense = of.dense
    writers = {
        stock(): FilledWriter(dense, attention="sdpa"),
        repeated: FilledWriter(dense, attention="eager"),
        **{name: FilledWriter(dense, partial(kv_cache, dense, format), "tilepress") for name, format in caches.items()},
    }
    return [Entrant(name, 0, partial(_loaded, one), name not in caches) for name, one in writers.items()]


def _loaded(writer: Writer, threads: int) -> Writer:
    return writer


def race(track: Track, what: str, entrants: Sequence[Entrant], settings: model.Settings, vocabulary: int) -> Rates:
    """`bench.model.measure`, tracked."""
    going = iter(track(range(model.steps(entrants, settings)), what))
    result = model.measure(entrants, settings, vocabulary, lambda text: next(going, None))
    next(going, None)  # lets the bar end
    rates = {(speed.name, speed.point.batch): speed.decode.mean for speed in result.speeds}
    return Rates(rates, result.refused)


def time_layers(
    track: Track, what: str, shapes: Sequence[Shape], contestants: Sequence[str], settings: linear.Settings
) -> list[linear.Result]:
    """`bench.linear.measure` of all shapes, tracked."""
    ours = [linear.parse_contestant(text) for text in contestants]
    going = iter(track(range(len(shapes) * linear.steps(ours, settings)), what))
    results = [one for shape in shapes for one in linear.measure(shape, ours, settings, lambda text: next(going, None))]
    next(going, None)  # lets the bar end
    return results


def core_counts(text: str) -> list[int]:
    """Those of `text`, or powers of two up to all cores if it names none."""
    most = torch.get_num_threads()
    counts = numbers(text) or sorted({min(2**power, most) for power in range(most.bit_length() + 1)})
    if max(counts) > (os.cpu_count() or 1):
        raise NotPossible(f"this machine has {os.cpu_count()} cores, not {max(counts)}")
    return counts
