"""The speed of a decoder on ranks: one process on each socket, with a part of every layer in its own memory.

A model, and limits: nothing of it was measured on several sockets. A step takes the time of the largest share of the
weights on one socket, and that of what the ranks tell each other, all over the link between sockets. Attention,
caches and threads that wait for each other in a socket take no time here.
"""

from dataclasses import dataclass
from typing import Any

from ..hardware import Machine
from .model import Prediction

NUMBER = 4  # bytes of what ranks add up and gather: float32


@dataclass(frozen=True)
class Cut:
    """What a step of a decoder on `ranks` ranks depends on. `weights`: the largest share of each part, together."""

    ranks: int
    weights: int
    blocks: int
    hidden: int
    vocabulary: int

    @property
    def sums(self) -> int:
        """Of the embedding's rows, and in each block after attention and after the feed-forward network."""
        return 1 + 2 * self.blocks


@dataclass(frozen=True)
class Step:
    """A token for each of `rows` sequences: seconds for weights, and for sums and logits of several ranks."""

    rows: int
    weights: float
    exchange: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.rows / (self.weights + self.exchange)

    @property
    def exchange_share(self) -> float:
        return self.exchange / (self.weights + self.exchange)


def step(machine: Machine, prediction: Prediction, cut: Cut, rows: int) -> Step:
    """`prediction`: of `rows` rows on `machine`, one socket of it, for all weights."""
    check_ranks(machine, cut.ranks)
    return Step(rows, cut.weights * rows / prediction.flops, _exchange(machine, cut, rows))


def check_ranks(machine: Machine, ranks: int) -> None:
    """ValueError unless each has a socket."""
    sockets = machine.sockets.count if machine.sockets else 1
    if ranks < 1:
        raise ValueError(f"there are 1 or more ranks, not {ranks}")
    if ranks > sockets:
        raise ValueError(f"{ranks} ranks need as many sockets, and {machine.name} is described with {sockets}")


def one_process(machine: Machine, count: int) -> Machine:
    """`count` sockets as one machine, for a process on all of them whose weights lie evenly in their memories: from
    there comes all but one part in `count` of what a socket reads, over the link."""
    check_ranks(machine, count)
    if machine.sockets is None or count == 1:
        return machine
    reads = min(machine.memory.bandwidth, machine.sockets.bandwidth * count / (count - 1))
    changes: dict[str, Any] = {"cores": count * machine.cores, "memory": {"bandwidth": count * reads}}
    if machine.matrix and machine.matrix.flops:
        changes["matrix"] = {"flops": count * machine.matrix.flops}
    return machine.changed(**changes)


def _exchange(machine: Machine, cut: Cut, rows: int) -> float:
    """Seconds: every rank reads the others' numbers of each sum, rank 0 their logits."""
    if machine.sockets is None or cut.ranks == 1:
        return 0.0
    others, link = cut.ranks - 1, machine.sockets
    numbers = rows * (cut.sums * cut.hidden * others + cut.vocabulary * others / cut.ranks)
    return (cut.sums + 1) * others * link.latency + numbers * NUMBER / link.bandwidth
