"""Requests to measure an engine with: how long they are, when they come, and what their prompts have in common."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

LEAST_RATE, MOST_RATE = 1e-3, 1e6  # requests a second


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens, uniform from `least` to `most`."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """128, or a range: 32-512."""
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
        least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= least <= most:
            raise ValueError(f"a length is a number of tokens, 128 say, or a range such as 32-512; not {text!r}")
        return cls(least, most)

    @property
    def label(self) -> int | str:
        return self.least if self.least == self.most else str(self)

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True, kw_only=True)
class Load:
    """`requests` with prompts of random tokens, each for an answer of so many `tokens`.

    rate: a second; they come as a Poisson process, the first one at once. concurrency: so many are in flight, and
    another one comes when one ends. One of the two is None.
    prefix: all prompts begin with the same so many tokens.
    seed: the same seed gives the same requests, at any rate and concurrency.
    """

    requests: int = 64
    rate: float | None = None
    concurrency: int | None = None
    prompt: Lengths = Lengths(128, 128)
    tokens: Lengths = Lengths(64, 64)
    prefix: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.concurrency is None):
            raise ValueError("requests come at a rate or with a concurrency: give one of the two")
        if self.rate is not None and not LEAST_RATE <= self.rate <= MOST_RATE:
            raise ValueError(f"a rate is {LEAST_RATE:g} to {MOST_RATE:g} requests a second, not {self.rate:g}")
        if self.prefix > self.prompt.least:
            raise ValueError(f"a prefix of {self.prefix} tokens is longer than a prompt of {self.prompt.least}")

    @property
    def most_live(self) -> int:
        """Requests in flight at most."""
        return self.concurrency or self.requests

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that may come, prompt and answer."""
        return self.prompt.most + self.tokens.most

    @property
    def most_steps(self) -> int:
        """An engine that computes a token of the oldest request in each step, or more, takes no more steps."""
        return self.requests * self.longest

    def __str__(self) -> str:
        """For people."""
        coming = f"{self.concurrency} at a time" if self.rate is None else f"{self.rate:g} a second"
        shared = f", {self.prefix} of them shared" if self.prefix else ""
        return f"{self.requests} requests, {coming}: prompts of {self.prompt} tokens{shared}, answers of {self.tokens}"


@dataclass(frozen=True)
class Arrival:
    """A request: ids of its prompt, and tokens of its answer. seconds: when it comes, after the first one; 0 if it
    comes when another one ends."""

    seconds: float
    prompt: list[int]
    tokens: int


def arrivals(load: Load, vocabulary: int) -> Iterator[Arrival]:
    """The requests in the order in which they come."""
    random, ids = Random(load.seed), range(vocabulary)
    prefix = random.choices(ids, k=load.prefix)
    seconds = 0.0
    for _ in range(load.requests):
        prompt, tokens = (random.randint(one.least, one.most) for one in (load.prompt, load.tokens))
        yield Arrival(seconds, prefix + random.choices(ids, k=prompt - load.prefix), tokens)
        gap = random.expovariate(1)
        seconds += 0.0 if load.rate is None else gap / load.rate
