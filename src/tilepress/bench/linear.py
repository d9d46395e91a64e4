"""How fast linear layers run on packed weights, beside other people's, in one interleaved run.

Every entrant goes through copies of its weights that fill the last-level cache four times over, so that each call
reads its weights from memory, as the layers of a model do. Entrants of the same packed weights share the copies, and
the turn through them. Plain passes over memory take turns with all of them, since what memory gives changes from one
second to the next on a shared machine: long ones, whose median is the read bandwidth, and for our own layers such
as read no more bytes than these do.
"""

import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..formats import BFP, FormatError, Integer, WeightFormat, parse, parse_weight
from ..records import Labels
from ..tiles import PackedMatrix, pack
from ..tiles.layout import BLOCK_NEURONS
from ..tiles.native import own_copy
from .bandwidth import Passes, Reader
from .peers import PEERS, TORCH, Call, Entrant, Peer, copies_of
from .race import Step, free_memory, race, race_times, torch_threads
from .shapes import Shape

FORM = "FORMAT[@DENSITY%][+ACTIVATIONS], int4:g32@50%+int8 say"
SWEEP = (1.0, 0.5, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class Contestant:
    """Packed weights of one density (1 is dense, without a mask) and what the activations are made into."""

    format: WeightFormat
    density: float = 1.0
    activations: str = "float"

    def __str__(self) -> str:
        activations = "" if self.activations == "float" else f"+{self.activations}"
        return f"{self.weights}{activations}"

    @property
    def labels(self) -> Labels:
        """For records."""
        return Labels(format=str(self.format), density=self.density, activations=self.activations)

    @property
    def weights(self) -> str:
        return f"{self.format}" if self.density == 1 else f"{self.format}@{100 * self.density:g}%"


@dataclass(frozen=True)
class Settings:
    """`seconds`: time for the calls of one entrant at one batch; it makes at most `repeats` of them. `among`: the
    names of the peers to take; all if none is named. `memory`: bytes that all copies of weights may take, and as many
    again that are only read; two copies of each are made in any case."""

    batches: Sequence[int] = (1,)
    dtype: torch.dtype = torch.float32
    repeats: int = 50
    seconds: float = 0.25
    threads: int | None = None
    peers: bool = True
    among: Sequence[str] = ()
    memory: int = sys.maxsize

    @property
    def chosen_peers(self) -> list[Peer]:
        """The peers to measure beside contestants."""
        return [peer for peer in PEERS if self.peers and (not self.among or peer.name in self.among)]


@dataclass(frozen=True)
class Timing:
    """Median time of a call, and the weights as stored that it reads in that time. `over_read`: how many times as fast
    that is as threads that do nothing but read as many bytes, in one call too; None for peers. `labels`: what records
    call it."""

    name: str
    labels: Labels
    kernel: str
    is_peer: bool
    seconds: float
    bytes_per_second: float
    share_of_bandwidth: float
    over_read: float | None = None


@dataclass(frozen=True)
class Result:
    """All timings of one shape and batch; `bandwidth` in bytes a second, `readings` of it in the first and the second
    half of the time; `refused`: peer → why it is not among them."""

    shape: Shape
    batch: int
    bandwidth: float
    readings: tuple[float, float]
    timings: Sequence[Timing]
    refused: Mapping[str, str]

    def over(self, timing: Timing) -> dict[str, float]:
        """Peer → how many times as long as `timing` it takes."""
        return {peer.name: peer.seconds / timing.seconds for peer in self.timings if peer.is_peer}


def parse_contestant(text: str) -> Contestant:
    """FORMAT[@DENSITY%][+ACTIVATIONS], or a ValueError that says what is wrong with it."""
    weights, plus, activations = text.strip().partition("+")
    name, at, density = weights.partition("@")
    try:
        format, share = parse_weight(name), _density(density) if at else 1.0
        return Contestant(format, share, _activations(activations, format) if plus else "float")
    except ValueError as error:
        whose = "" if text == name else f"{text!r}: "
        raise ValueError(f"{whose}{error}; a contestant is {FORM}") from error


def _density(text: str) -> float:
    number = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if number is None or not 0 < float(number[1]) <= 100:
        raise ValueError(f"a density is written 50%, say, above 0% and up to 100%, not {text!r}")
    return float(number[1]) / 100


def _activations(text: str, format: WeightFormat) -> str:
    if text in ("float", "bf16"):
        return text
    if text != "int8" and not _is_bfp(text):
        raise ValueError(f"activations are float, bf16, int8 or bfp:gN:mN, not {text!r}")
    if not isinstance(format.element, Integer):
        raise ValueError(f"{text} activations need integer weights, not {format}")
    return text if text == "int8" else str(parse(text))


def _is_bfp(text: str) -> bool:
    try:
        return isinstance(parse(text), BFP)
    except FormatError:
        if text.startswith("bfp"):
            raise
        return False


def sweep(contestant: Contestant) -> list[Contestant]:
    """The same format and activations at every density of SWEEP, dense first."""
    if contestant.density != 1:
        raise ValueError(f"a sweep sets the densities itself; leave {100 * contestant.density:g}% off {contestant}")
    return [replace(contestant, density=density) for density in SWEEP]


def pays_from(seconds: Mapping[float, float]) -> float | None:
    """Density → time: the highest density from which on down sparse weights beat dense ones (density 1), or None."""
    highest = None
    for density in sorted(density for density in seconds if density < 1):
        if seconds[density] >= seconds[1.0]:
            break
        highest = density
    return highest


def steps(contestants: Sequence[Contestant], settings: Settings) -> int:
    """How often `measure` will call its `step` for one shape."""
    return len({c.weights for c in contestants}) + len(settings.chosen_peers) + len(settings.batches)


def measure(
    shape: Shape, contestants: Sequence[Contestant], settings: Settings, step: Step = lambda text: None
) -> Iterator[Result]:
    """One result for each batch, for all contestants and all peers that are honest here, with the same threads."""
    with torch_threads(settings.threads) as threads:
        entrants, refused = _enter(shape, contestants, settings, threads, step)
        reader = Reader(threads, most=settings.memory)
        sizes = list(dict.fromkeys(entrant.weight_bytes for entrant in entrants if not entrant.is_peer))
        passes = [reader.passes(), *map(reader.passes, sizes)]
        variants = [variant for one in passes for variant in one.variants]
        for batch in settings.batches:
            step(f"{shape}, batch {batch}")
            x = torch.randn(batch, shape.inputs, generator=torch.Generator().manual_seed(1)).to(settings.dtype)
            calls = [*variants, *(entrant.prepare(x) for entrant in entrants)]
            pools = [*(TORCH for _ in variants), *(e.pool for e in entrants)]
            times = race_times(calls, pools, settings.repeats, settings.seconds)
            medians = iter([statistics.median(spent) for spent in times])
            bandwidth, *rates = [_fastest(one, medians) for one in passes]
            reads = dict(zip(sizes, rates, strict=True))
            timings = [_timing(entrant, batch, next(medians), bandwidth, reads) for entrant in entrants]
            readings = _readings(passes[0].nbytes, min(times[: len(passes[0].variants)], key=statistics.median))
            yield Result(shape, batch, bandwidth, readings, timings, refused)


def _fastest(passes: Passes, times: Iterator[float]) -> float:
    """Bytes a second of the variant that took the least of the next times."""
    return passes.nbytes / min(next(times) for _ in passes.variants)


def _readings(nbytes: int, times: Sequence[float]) -> tuple[float, float]:
    """Bytes a second of passes over `nbytes` in the first and in the second half of their `times`."""
    half = len(times) // 2
    return nbytes / statistics.median(times[: half or 1]), nbytes / statistics.median(times[half:])


def call_times(
    shape: Shape, contestants: Sequence[Contestant], settings: Settings
) -> dict[tuple[Contestant, int], float]:
    """By contestant and batch, seconds of a call with hardly any weights, a block of neurons for each thread: rounding
    the activations, starting the threads, and what Python takes."""
    with torch_threads(settings.threads) as threads:
        weight = torch.randn(BLOCK_NEURONS * threads, shape.inputs, generator=torch.Generator().manual_seed(0))
        packed = [pack_contestant(weight, contestant, settings.threads) for contestant in contestants]
        entrants = [_entrant(c, cycle([one]), settings) for c, one in zip(contestants, packed, strict=True)]
        seconds_of: dict[tuple[Contestant, int], float] = {}
        for batch in settings.batches:
            x = torch.ones(batch, shape.inputs, dtype=settings.dtype)
            calls = [entrant.prepare(x) for entrant in entrants]
            times = race(calls, [e.pool for e in entrants], settings.repeats, settings.seconds)
            seconds_of |= {(one, batch): seconds for one, seconds in zip(contestants, times, strict=True)}
        return seconds_of


def _timing(entrant: Entrant, batch: int, seconds: float, bandwidth: float, reads: Mapping[int, float]) -> Timing:
    rate = entrant.weight_bytes / seconds
    over_read = None if entrant.is_peer else rate / reads[entrant.weight_bytes]
    who = (entrant.name, entrant.labels, entrant.kernel(batch), entrant.is_peer)
    return Timing(*who, seconds, rate, rate / bandwidth, over_read)


def _enter(
    shape: Shape, contestants: Sequence[Contestant], settings: Settings, threads: int, step: Step
) -> tuple[list[Entrant], dict[str, str]]:
    """Everyone with their weights, and peer → reason for those who are refused."""
    refusals = {peer.name: peer.refusal(shape) for peer in settings.chosen_peers}
    packings = dict.fromkeys(contestant.weights for contestant in contestants)
    allowance = min(free_memory(), settings.memory) // (len(packings) + len(refusals))
    weight = torch.randn(shape.neurons, shape.inputs, generator=torch.Generator().manual_seed(0))
    entrants = _ours(weight, contestants, allowance, settings, step)
    for peer in settings.chosen_peers:
        step(f"{shape}, weights of {peer.name}")
        if refusals[peer.name] is None:
            entrants.append(peer.load(weight, allowance, threads))
    return entrants, {name: reason for name, reason in refusals.items() if reason is not None}


def _ours(
    weight: Tensor, contestants: Sequence[Contestant], allowance: int, settings: Settings, step: Step
) -> list[Entrant]:
    turns: dict[str, Iterator[PackedMatrix]] = {}
    entrants = []
    for contestant in contestants:
        if contestant.weights not in turns:
            step(f"{weight.shape[0]}x{weight.shape[1]}, weights {contestant.weights}")
            turns[contestant.weights] = copies_in_turn(pack_contestant(weight, contestant, settings.threads), allowance)
        entrants.append(_entrant(contestant, turns[contestant.weights], settings))
    return entrants


def pack_contestant(weight: Tensor, contestant: Contestant, threads: int | None) -> PackedMatrix:
    """Of standard normal weights the largest magnitudes are kept: those beyond the quantile that the density gives."""
    if contestant.density == 1:
        return pack(weight, contestant.format, threads=threads)
    threshold = 2**0.5 * torch.erfinv(torch.tensor(1 - contestant.density, dtype=torch.float64)).item()
    return pack(weight, contestant.format, mask=weight.abs() > threshold, threads=threads)


def copies_in_turn(first: PackedMatrix, allowance: int) -> Iterator[PackedMatrix]:
    return cycle([_copy(first) for _ in range(copies_of(first.nbytes, allowance))])


def _copy(packed: PackedMatrix) -> PackedMatrix:
    clones: dict[str, Any] = {name: own_copy(array) for name, array in packed.streams.items()}
    copy = replace(packed, **clones)
    assert copy.native  # made now, not in the first call
    return copy


def _entrant(contestant: Contestant, turn: Iterator[PackedMatrix], settings: Settings) -> Entrant:
    packed, activations, threads = next(turn), contestant.activations, settings.threads

    def kernel(batch: int) -> str:
        return kernels.linear_kernel(packed, batch, settings.dtype, activations=activations)

    def prepare(x: Tensor) -> Call:
        return lambda: kernels.linear(x, next(turn), activations=activations, threads=threads)

    kernel(1)  # refuses what there is no kernel for, before anything is timed
    return Entrant(str(contestant), contestant.labels, packed.nbytes, kernel, prepare, is_peer=False)
