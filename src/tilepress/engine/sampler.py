"""The next token of each sequence of a step, from its logits; computed by native code, row by row as
`sampler_reference.py` has it.

Each row is computed alone, with one random number from a counter: what is chosen depends on the row's logits and on its
own sequence, never on the batch or the number of threads.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import _native
from ..tiles.packing import thread_count
from .sampling import Sampling

NOT_NUMBERS = "logits are not numbers"
NONE_ALLOWED = "no token is allowed"
_REASONS = {-1: NOT_NUMBERS, -2: NONE_ALLOWED}  # what native code gives in place of a token
_GREEDY = (0.0, 0, 1.0, 0.0, 1.0, 0.0, -1, None)  # a row as native code takes it, see `_parts`
_LOGPROBS = 6  # their place in such a tuple
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64
_SAMPLER = _native.Sampler()


class Row(Protocol):
    """A sequence that gets a token.

    tokens: int64 ids so far. prompt: how many of them are its prompt. seed: see `mix`.
    """

    tokens: "array[int]"
    prompt: int
    seed: int

    @property
    def sampling(self) -> Sampling: ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token. logprob and top, ids with log-probabilities, highest first, are there if they are wanted."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no token."""

    reason: str


def sample(logits: Tensor, rows: Sequence[Row], threads: int | None = None) -> list[Sampled | Failed]:
    """logits: float32 [rows, vocabulary]. threads: at most; by default as many as torch has."""
    return sample_numbers(logits, rows, [_number(row) for row in rows], threads)


def sample_numbers(
    logits: Tensor, rows: Sequence[Row], numbers: Sequence[float], threads: int | None = None
) -> list[Sampled | Failed]:
    """The tokens that these numbers of [0, 1) stand for."""
    parts: list[tuple[Any, ...]] = []
    failed: dict[int, Failed] = {}
    for index, (row, number) in enumerate(zip(rows, numbers, strict=True)):
        try:
            parts.append(_parts(row, number, logits.shape[1]))
        except Exception as error:
            failed[index] = Failed(f"the mask failed: {error}")
            parts.append(_GREEDY)  # to know whether its logits are numbers
    drawn = _SAMPLER.sample(logits.detach().contiguous(), parts, thread_count(threads))
    outcomes = [_outcome(*one, part[_LOGPROBS] >= 0) for one, part in zip(drawn, parts, strict=True)]
    for index, failure in failed.items():
        if outcomes[index] != Failed(NOT_NUMBERS):
            outcomes[index] = failure
    return outcomes


def _outcome(token: int, logprob: float, top: list[tuple[int, float]], wants_logprobs: bool) -> Sampled | Failed:
    if token < 0:
        return Failed(_REASONS[token])
    return Sampled(token, logprob, tuple(top)) if wants_logprobs else Sampled(token)


def _number(row: Row) -> float:
    return uniform(row.seed, len(row.tokens) - row.prompt) if row.sampling.temperature else 0.0


def _parts(row: Row, number: float, vocabulary: int) -> tuple[Any, ...]:
    """A row as native code takes it."""
    sampling = row.sampling
    logprobs = min(sampling.logprobs or 0, vocabulary) if sampling.wants_logprobs else -1
    changes = _changes(row, vocabulary) if sampling.adjusts else None
    return (
        float(sampling.temperature),
        min(sampling.top_k, vocabulary),
        float(sampling.top_p),
        float(sampling.min_p),
        float(sampling.typical_p),
        number,
        logprobs,
        changes,
    )


@np.errstate(over="ignore")  # what comes of it is looked at
def _changes(row: Row, vocabulary: int) -> tuple[Any, ...]:
    sampling = row.sampling
    return (
        np.array(list(sampling.logit_bias), np.int64),
        np.array(list(sampling.logit_bias.values()), np.float32),
        row.tokens,
        row.prompt,
        float(sampling.repetition_penalty),
        float(sampling.presence_penalty),
        float(sampling.frequency_penalty),
        mask_of(row, vocabulary),
    )


def mask_of(row: Row, vocabulary: int) -> NDArray[np.uint8] | None:
    """What a row's mask allows, as bytes; None for all."""
    if row.sampling.mask is None:
        return None
    mask = row.sampling.mask(row.tokens[row.prompt :].tolist())
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.shape != (vocabulary,):
        raise ValueError(f"a mask is bool [{vocabulary}], not {mask.dtype} {list(mask.shape)}")
    return np.ascontiguousarray(mask.numpy()).view(np.uint8)


def uniform(seed: int, position: int) -> float:
    """A number of [0, 1), the position-th of a seed."""
    return (mix(seed + (position + 1) * _GOLDEN) >> 11) * 2.0**-53


def mix(number: int) -> int:
    """64 bits that look random: the output function of SplitMix64."""
    number &= _WORD
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _WORD
    return number ^ number >> 31
