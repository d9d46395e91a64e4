"""How fast tokens attend to a cache, packed and beside other people's, in one interleaved run.

A step is what a layer does with a new token: its key and value are added to the cache, which has room for them, and its
queries attend to all of it. Every entrant goes through copies of its cache that fill the last-level cache four times
over, as the layers of a model do; their bytes over the time of a step are held against the read bandwidth of the same
run, that of passes over memory which take turns with them. Or all tokens of a prompt come at once, to an empty cache.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..formats.kv import KvFormat, parse_kv
from ..kernels.kv_store import KvStore, kv_store
from ..records import Labels
from .bandwidth import Reader
from .peers import TORCH, copies_of
from .race import Step, free_memory, race, torch_threads

DEPTHS = (1024, 4096, 16384, 32768)
PROMPTS = (512, 2048, 8192)
FORMATS = ("bfp4", "bfp4n+rotate", "bfp8", "sparse:k30,v50")
SHARES = 4  # of the free memory, one for the copies of each entrant


@dataclass(frozen=True)
class Heads:
    """Heads of queries, heads of keys and values, and channels of each."""

    queries: int
    keys: int
    channels: int

    def __str__(self) -> str:
        return f"{self.queries}/{self.keys}x{self.channels}"


MODELS = {"llama3-8b": Heads(32, 8, 128), "smollm2": Heads(9, 3, 64)}


def parse_heads(text: str) -> Heads:
    """A model of MODELS, or 32/8x128."""
    if text in MODELS:
        return MODELS[text]
    numbers = text.replace("/", "x").split("x")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() and int(number) for number in numbers):
        raise ValueError(f"{text!r} is neither one of {', '.join(MODELS)} nor QUERIES/KEYSxCHANNELS, 32/8x128 say")
    heads = Heads(*map(int, numbers))
    if heads.queries % heads.keys:
        raise ValueError(f"{heads.keys} heads of keys do not divide {heads.queries} of queries")
    return heads


@dataclass(frozen=True)
class Settings:
    """`depths`: tokens that are there before a step, or with `prompt` those that come at once."""

    formats: Sequence[str] = FORMATS
    depths: Sequence[int] = DEPTHS
    dtypes: Sequence[torch.dtype] = (torch.float32,)
    repeats: int = 25
    peers: bool = True
    threads: int | None = None
    prompt: bool = False


@dataclass(frozen=True)
class Timing:
    """Median `seconds` of a step over a cache of `nbytes`, or of a prompt that fills it. `labels`: what records call
    it."""

    name: str
    labels: Labels
    is_peer: bool
    seconds: float
    nbytes: int
    share_of_bandwidth: float

    @property
    def rate(self) -> float:
        """Bytes of the cache a second."""
        return self.nbytes / self.seconds


@dataclass(frozen=True)
class Result:
    """At one depth; `bandwidth` in bytes a second, which prompts are not held against: 0."""

    heads: Heads
    depth: int
    bandwidth: float
    timings: Sequence[Timing]

    @property
    def best_peer(self) -> Timing | None:
        return min((timing for timing in self.timings if timing.is_peer), key=lambda peer: peer.seconds, default=None)

    def over(self, timing: Timing) -> dict[str, float]:
        """Peer → how many times as long it takes."""
        return {peer.name: peer.seconds / timing.seconds for peer in self.timings if peer.is_peer}


@dataclass(frozen=True)
class _Entrant:
    name: str
    is_peer: bool
    nbytes: int
    step: Callable[[], Any]

    @property
    def labels(self) -> Labels:
        return Labels(library=self.name) if self.is_peer else Labels(kv=self.name)

    def timing(self, seconds: float, share_of_bandwidth: float = 0.0) -> Timing:
        return Timing(self.name, self.labels, self.is_peer, seconds, self.nbytes, share_of_bandwidth)


def measure(heads: Heads, settings: Settings, step: Step = lambda text: None) -> Iterator[Result]:
    """One result for each depth."""
    formats = {name: _small(name) for name in settings.formats}
    with torch_threads(settings.threads) as threads:
        if settings.prompt:
            yield from _prompts(heads, formats, settings, step)
            return
        passes = Reader(threads).passes()
        for depth in settings.depths:
            step(f"{heads}, {depth} tokens")
            token = [torch.randn(1, n, 1, heads.channels) for n in (heads.queries, heads.keys, heads.keys)]
            past = [torch.randn(1, heads.keys, depth, heads.channels) for _ in range(2)]
            entrants = [_packed(name, format, heads, past, token) for name, format in formats.items()]
            if settings.peers:
                entrants += [_sdpa(past, token, dtype) for dtype in settings.dtypes]
            calls = [*passes.variants, *(entrant.step for entrant in entrants)]
            times = race(calls, [TORCH for _ in calls], settings.repeats)
            reads = len(passes.variants)
            bandwidth = passes.nbytes / min(times[:reads])
            steps = zip(entrants, times[reads:], strict=True)
            timings = [entrant.timing(seconds, entrant.nbytes / seconds / bandwidth) for entrant, seconds in steps]
            yield Result(heads, depth, bandwidth, timings)


def _prompts(heads: Heads, formats: dict[str, KvFormat], settings: Settings, step: Step) -> Iterator[Result]:
    for tokens in settings.depths:
        step(f"{heads}, a prompt of {tokens} tokens")
        prompt = [torch.randn(1, n, tokens, heads.channels) for n in (heads.queries, heads.keys, heads.keys)]
        entrants = [_packed_prompt(name, format, heads, prompt) for name, format in formats.items()]
        if settings.peers:
            entrants += [_sdpa_prompt(prompt, dtype) for dtype in settings.dtypes]
        times = race([entrant.step for entrant in entrants], [TORCH for _ in entrants], settings.repeats)
        pairs = zip(entrants, times, strict=True)
        timings = [entrant.timing(seconds) for entrant, seconds in pairs]
        yield Result(heads, tokens, 0.0, timings)


def _packed_prompt(name: str, format: KvFormat, heads: Heads, prompt: list[Tensor]) -> _Entrant:
    queries, keys, values = prompt

    def step() -> None:
        kv_store(format, 1, heads.keys, heads.channels).attend(queries, keys, values, heads.channels**-0.5)

    return _Entrant(name, False, _filled(format, heads, [keys, values]).nbytes, step)


def _sdpa_prompt(prompt: list[Tensor], dtype: torch.dtype) -> _Entrant:
    queries, keys, values = (part.to(dtype) for part in prompt)

    def step() -> None:
        scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)

    return _Entrant(_peer_name(dtype), True, keys.nbytes + values.nbytes, step)


def _peer_name(dtype: torch.dtype) -> str:
    return f"torch SDPA {str(dtype).removeprefix('torch.')}"


def _small(name: str) -> KvFormat:
    format = parse_kv(name)
    if not (format.bfp or format.is_sparse):
        raise ValueError(
            f"small caches are block floating point or sparse halves, not {format}; fp16 and bf16 are torch's own"
        )
    return format


def _filled(format: KvFormat, heads: Heads, past: list[Tensor]) -> KvStore:
    cache = kv_store(format, 1, heads.keys, heads.channels)
    cache.append(*past)
    return cache


def _packed(name: str, format: KvFormat, heads: Heads, past: list[Tensor], token: list[Tensor]) -> _Entrant:
    cache = _filled(format, heads, past)
    query, key, value = token
    scaling = heads.channels**-0.5

    nbytes = cache.nbytes
    copies = [cache, *(deepcopy(cache) for _ in range(_more_copies(nbytes)))]
    for copy in copies:  # memory for more tokens comes now, as it does once for many of them, and not in a step
        copy.append(key, value)
    turn = cycle(copies)
    return _Entrant(name, False, nbytes, lambda: next(turn).attend(query, key, value, scaling))


def _sdpa(past: list[Tensor], token: list[Tensor], dtype: torch.dtype) -> _Entrant:
    """torch's attention over keys and values that have room for one token more, so that adding it copies nothing."""
    query, key, value = (part.to(dtype) for part in token)
    keys, values = (torch.cat([part.to(dtype), part[:, :, :1].to(dtype)], 2) for part in past)

    nbytes = keys.nbytes + values.nbytes
    copies = cycle([(keys, values), *((keys.clone(), values.clone()) for _ in range(_more_copies(nbytes)))])

    def step() -> None:
        k, v = next(copies)
        k[:, :, -1:], v[:, :, -1:] = key, value
        scaled_dot_product_attention(query, k, v, enable_gqa=True)

    return _Entrant(_peer_name(dtype), True, nbytes, step)


def _more_copies(nbytes: int) -> int:
    return copies_of(nbytes, free_memory() // SHARES) - 1
