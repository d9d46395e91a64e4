"""How fast whole models write, beside other people's: prompt and decoding apart, in one interleaved run.

What is timed is what a user gets: `model.generate`, watched token by token. Prefill is the prompt's tokens over the
time to the first new one; decoding is the rate of those after it.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.generation.streamers import BaseStreamer

from ..records import Labels
from .bandwidth import read_bandwidth
from .peers import TORCH
from .race import SETTLE, Step, free_memory, torch_threads


@dataclass(frozen=True)
class Point:
    """`batch` sequences with `depth` tokens each in the cache when decoding begins: the prompt."""

    depth: int
    batch: int


@dataclass(frozen=True)
class Settings:
    """`prompt`, and more `depths` if any, are lengths of prompts; `tokens` are written after each, two at the least."""

    prompt: int = 121
    tokens: int = 32
    depths: Sequence[int] = ()
    batches: Sequence[int] = (1,)
    repeats: int = 3
    threads: int | None = None

    @property
    def points(self) -> list[Point]:
        lengths = dict.fromkeys([self.prompt, *self.depths])
        return [Point(*point) for point in product(lengths, dict.fromkeys(self.batches))]

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence, prompt and text."""
        return max(point.depth for point in self.points) + self.tokens


class Writer(Protocol):
    """A model that is loaded. `bytes_read`: of its weights, in every step of decoding."""

    bytes_read: int

    def write(self, prompt: Tensor, tokens: int) -> list[float]:
        """Continue each row of `prompt` [batch, length] by `tokens` tokens: the time, in seconds of one clock, when it
        began and when each token had come, [1 + tokens]."""


@dataclass(frozen=True)
class Entrant:
    """One in the race. `nbytes`: memory that it will take, about. `load` takes the threads to run with. Entrants of
    one `pool` share their threads. `labels`: what records call it, if there are to be any."""

    name: str
    nbytes: int
    load: Callable[[int], Writer]
    is_peer: bool = True
    pool: str = TORCH
    labels: Labels = field(default_factory=Labels)


@dataclass(frozen=True)
class Rate:
    """Tokens a second: mean and standard deviation of the repeats, NaN where there is only one."""

    mean: float
    sigma: float

    @classmethod
    def of(cls, rates: Sequence[float]) -> "Rate":
        return cls(statistics.mean(rates), statistics.stdev(rates) if len(rates) > 1 else float("nan"))


@dataclass(frozen=True)
class Speed:
    """Of one entrant at one point. A step of decoding reads all weights once, whatever the batch: that rate of bytes
    over the read bandwidth is `share_of_bandwidth`."""

    name: str
    labels: Labels
    is_peer: bool
    point: Point
    prefill: Rate
    decode: Rate
    bytes_read: int
    share_of_bandwidth: float


@dataclass(frozen=True)
class Result:
    """`bandwidth` in bytes a second; `refused`: peer → why it is not among the speeds."""

    speeds: Sequence[Speed]
    bandwidth: float
    refused: Mapping[str, str]

    def over(self, speed: Speed) -> dict[str, tuple[float, float]]:
        """Peer → how many times as fast as it `speed` is at the same point: (prefill, decode)."""
        return {
            peer.name: (speed.prefill.mean / peer.prefill.mean, speed.decode.mean / peer.decode.mean)
            for peer in self.speeds
            if peer.is_peer and peer.point == speed.point
        }


class TransformersWriter:
    """Any causal language model of transformers. `cache` makes an empty cache for each text; its own if None."""

    def __init__(self, model: Any, cache: Callable[[], Any] | None = None) -> None:
        self.model, self.cache = model, cache
        self.bytes_read = bytes_read(model)

    def write(self, prompt: Tensor, tokens: int) -> list[float]:
        clock, mask = _Clock(), torch.ones_like(prompt)
        # An end that never comes: min_new_tokens would search the vocabulary for it at every step, which no user does.
        ends = {"eos_token_id": self.model.config.get_text_config().vocab_size, "pad_token_id": 0}
        cache = self.past(prompt)
        past = {} if cache is None else {"past_key_values": cache}
        options = {"do_sample": False, "max_new_tokens": tokens, "streamer": clock, **ends, **past}
        clock.start()
        self.model.generate(prompt, attention_mask=mask, **options)
        return clock.times

    def past(self, prompt: Tensor) -> Any:
        """The cache to begin with; None for the model's own."""
        return self.cache() if self.cache else None


class _Clock(BaseStreamer):
    """Notes when it was started, and when each token came; what comes first is the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._began = False

    def start(self) -> None:
        self.times = [time.perf_counter()]

    def put(self, value: Tensor) -> None:
        if self._began:
            self.times.append(time.perf_counter())
        self._began = True

    def end(self) -> None:
        pass


def bytes_read(model: Any) -> int:
    """Bytes of weights that a step of decoding reads: all, but of an embedding that is not the output layer's weight
    too only rows."""
    tensors: dict[int, int] = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    embedding, output = model.get_input_embeddings(), model.get_output_embeddings()
    kind = "weight" if getattr(embedding, "matrix", None) is None else "matrix"
    table = getattr(embedding, kind)
    apart: int = 0 if getattr(output, kind, None) is table else table.nbytes
    return sum(tensors.values()) - apart


def steps(entrants: Sequence[Entrant], settings: Settings) -> int:
    """How often `measure` will call its `step`."""
    return len(entrants) * (1 + len(settings.points) * (1 + settings.repeats))


def measure(entrants: Sequence[Entrant], settings: Settings, vocabulary: int, step: Step = lambda text: None) -> Result:
    """Every entrant at every point with the same threads and the same prompts, of tokens below `vocabulary`. They take
    turns, repeat by repeat, where memory holds them all; else one is measured after another."""
    speeds: list[Speed] = []
    refused: dict[str, str] = {}
    with torch_threads(settings.threads) as threads:
        bandwidth = read_bandwidth(threads)
        for together in _groups(entrants):
            writers = dict(_loaded(together, threads, refused, step))
            for point in settings.points:
                prompt = _prompt(point, vocabulary)
                times = _race(writers, prompt, settings, step)
                speeds += [_speed(one, writers[one], point, times[one], bandwidth) for one in writers]
            del writers
            gc.collect()  # modules and hooks refer to each other
    order = {entrant.name: place for place, entrant in enumerate(entrants)}
    places = {point: place for place, point in enumerate(settings.points)}
    speeds.sort(key=lambda speed: (places[speed.point], order[speed.name]))
    return Result(speeds, bandwidth, refused)


def _groups(entrants: Sequence[Entrant]) -> list[Sequence[Entrant]]:
    fits = sum(entrant.nbytes for entrant in entrants) <= free_memory()
    return [entrants] if fits else [[entrant] for entrant in entrants]


def _loaded(
    entrants: Sequence[Entrant], threads: int, refused: dict[str, str], step: Step
) -> Iterator[tuple[Entrant, Writer]]:
    """Those that load; a peer that cannot is `refused`, one of ours is an error."""
    for entrant in entrants:
        step(f"loading {entrant.name}")
        try:
            yield entrant, entrant.load(threads)
        except (RuntimeError, OSError) as error:
            if not entrant.is_peer:
                raise
            refused[entrant.name] = str(error)


def _prompt(point: Point, vocabulary: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (point.batch, point.depth), generator=generator)


def _race(
    writers: Mapping[Entrant, Writer], prompt: Tensor, settings: Settings, step: Step
) -> dict[Entrant, list[list[float]]]:
    """Entrant → the times of each repeat. A first round, of two tokens, does not count: memory is touched for the first
    time in it."""
    times: dict[Entrant, list[list[float]]] = {entrant: [] for entrant in writers}
    last = None
    for repeat in range(1 + settings.repeats):
        for entrant, writer in writers.items():
            step(f"{entrant.name}, prompt of {prompt.shape[1]}, batch {len(prompt)}")
            time.sleep(SETTLE if entrant.pool != last else 0)
            last = entrant.pool
            written = writer.write(prompt, settings.tokens if repeat else 2)
            if repeat:
                times[entrant].append(written)
    return times


def _speed(entrant: Entrant, writer: Writer, point: Point, times: list[list[float]], bandwidth: float) -> Speed:
    prefill = Rate.of([point.batch * point.depth / (first - start) for start, first, *_ in times])
    decode = Rate.of([point.batch * (len(ends) - 2) / (ends[-1] - ends[1]) for ends in times])
    share = writer.bytes_read * decode.mean / point.batch / bandwidth
    return Speed(entrant.name, entrant.labels, entrant.is_peer, point, prefill, decode, writer.bytes_read, share)


def check_length(name: str, config: Any, settings: Settings) -> None:
    """ValueError if the model has no positions for the longest sequence."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    if limit and settings.longest > limit:
        raise ValueError(
            f"{name} takes {limit} tokens, and {settings.longest - settings.tokens} of a prompt and {settings.tokens} "
            "more were asked for: give shorter prompts, depths or texts"
        )


def parameter_bytes(model: nn.Module, dtype: torch.dtype) -> int:
    """Memory of all parameters in `dtype`; the model may be without weights."""
    return sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
