"""The next token of each sequence of a step, from its logits.

Each row is computed alone, with one random number from a counter: what is chosen depends on the row's logits and on its
own sequence, never on the batch.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .sampling import Sampling

NOT_NUMBERS = "logits are not numbers"
_WORD = (1 << 64) - 1
_BLOCK = 256  # weights that are summed before one is looked for
_GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.integer[Any]]


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


@np.errstate(over="ignore", invalid="ignore")  # what comes of it is looked at
def sample(logits: Tensor, rows: Sequence[Row]) -> list[Sampled | Failed]:
    """logits: float32 [rows, vocabulary]. One argmax serves all greedy rows."""
    table = logits.detach().numpy()
    best = table.argmax(axis=1)  # the place of a NaN, if there is one
    finite = np.isfinite(table[np.arange(len(table)), best])
    return [
        _sample_row(table[index], row, token) if is_finite else Failed(NOT_NUMBERS)
        for index, (row, token, is_finite) in enumerate(zip(rows, best.tolist(), finite.tolist(), strict=True))
    ]


def _sample_row(logits: Floats, row: Row, best: int) -> Sampled | Failed:
    sampling, token = row.sampling, best
    if sampling.adjusts or sampling.temperature:
        try:
            adjusted = adjust(logits, row)
        except Exception as error:
            return Failed(f"the mask failed: {error}")
        token = int(adjusted.argmax())
        if not np.isfinite(adjusted[token]):
            return Failed("no token is allowed" if adjusted[token] < 0 else NOT_NUMBERS)
        if sampling.temperature:
            token = draw(adjusted, sampling, uniform(row.seed, len(row.tokens) - row.prompt))
    return _with_logprobs(logits, token, sampling) if sampling.wants_logprobs else Sampled(token)


def adjust(logits: Floats, row: Row) -> Floats:
    """One row's logits after bias, penalties and mask."""
    sampling = row.sampling
    if not sampling.adjusts:
        return logits
    logits = logits.copy()
    if sampling.logit_bias:
        logits[list(sampling.logit_bias)] += np.array(list(sampling.logit_bias.values()), logits.dtype)
    _penalize(logits, row)
    if sampling.mask is not None:
        mask = sampling.mask(row.tokens[row.prompt :].tolist())
        if mask is not None:
            logits[~_checked(mask, len(logits))] = -np.inf
    return logits


def _penalize(logits: Floats, row: Row) -> None:
    sampling, seen = row.sampling, np.array(row.tokens)
    answer = seen[row.prompt :]
    if sampling.repetition_penalty != 1:
        values = logits[seen]
        factor = logits.dtype.type(sampling.repetition_penalty)
        logits[seen] = np.where(values < 0, values * factor, values / factor)
    if sampling.presence_penalty:
        logits[answer] -= logits.dtype.type(sampling.presence_penalty)  # once, however often a token is there
    if sampling.frequency_penalty:
        np.subtract.at(logits, answer, logits.dtype.type(sampling.frequency_penalty))


def _checked(mask: Tensor, vocabulary: int) -> NDArray[np.bool_]:
    if mask.dtype != torch.bool or mask.shape != (vocabulary,):
        raise ValueError(f"a mask is bool [{vocabulary}], not {mask.dtype} {list(mask.shape)}")
    return mask.numpy()


def draw(logits: Floats, sampling: Sampling, number: float) -> int:
    """The token that a number of [0, 1) stands for."""
    ids, weights = candidates(logits, sampling)
    chosen = _pick(weights, number)
    return chosen if ids is None else int(ids[chosen])


def _pick(weights: Floats, number: float) -> int:
    """The first place up to which the weights sum to more than this share of all; found among blocks, then in one."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK)).cumsum(dtype=np.float64)
    target = number * sums[-1]
    block = int(np.searchsorted(sums, target, side="right"))
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
    rest = min(target - (sums[block - 1] if block else 0.0), np.nextafter(inside[-1], 0))  # sums are rounded
    return block * _BLOCK + int(np.searchsorted(inside, rest, side="right"))


def candidates(logits: Floats, sampling: Sampling) -> tuple[Ids | None, Floats]:
    """Tokens that may be drawn, None for all, and their probabilities, times any number."""
    temperature = max(sampling.temperature, float(np.finfo(logits.dtype).tiny))
    weights = np.exp((logits - logits.max()) / logits.dtype.type(temperature))
    smallest = _smallest(weights, sampling)
    if smallest == 0 and sampling.typical_p == 1:
        return None, weights
    ids = np.flatnonzero(weights >= smallest)
    weights = weights[ids]
    if sampling.typical_p < 1:
        near = _typical(weights, sampling.typical_p)
        ids, weights = ids[near], weights[near]
    return ids, weights


def _smallest(weights: Floats, sampling: Sampling) -> float:
    """What a token must weigh for top_k, top_p and min_p; the largest is 1."""
    smallest = 0.0
    if 0 < sampling.top_k < len(weights):
        place = len(weights) - sampling.top_k
        smallest = float(np.partition(weights, place)[place])
    if sampling.top_p < 1:
        smallest = _smallest_of_mass(weights, smallest, sampling.top_p)
    return max(smallest, sampling.min_p)


def _smallest_of_mass(weights: Floats, smallest: float, share: float) -> float:
    """Of the weights from `smallest` on, the smallest of the largest that together have this share of their sum."""
    total = float((weights[weights >= smallest] if smallest else weights).sum(dtype=np.float64))
    certainly_left_out = (1 - share) * total / len(weights)  # all of these together are less than the rest
    largest = np.sort(weights.compress(weights >= max(smallest, certainly_left_out)))[::-1].astype(np.float64)
    before = largest.cumsum() - largest
    kept = max(1, int(np.count_nonzero(before < share * total)))
    return float(largest[kept - 1])


def _typical(weights: Floats, share: float) -> NDArray[np.bool_]:
    """Which weights are of tokens whose surprise is nearest to the expected one, until they sum to the share."""
    positive = np.maximum(weights, np.finfo(weights.dtype).tiny)
    probabilities = positive / positive.sum(dtype=np.float64)
    surprise = -np.log(probabilities)
    distance = np.abs(surprise - (probabilities * surprise).sum())
    order = np.argsort(distance, kind="stable")
    count = int(np.count_nonzero(probabilities[order].cumsum() < share))
    kept: NDArray[np.bool_] = distance <= distance[order[min(count, len(order) - 1)]]
    return kept


def _with_logprobs(logits: Floats, token: int, sampling: Sampling) -> Sampled:
    shifted = logits - logits.max()
    total = float(np.log(np.exp(shifted).sum(dtype=np.float64)))
    top: list[int] = []
    if sampling.logprobs:
        most = np.argpartition(-logits, min(sampling.logprobs, len(logits)) - 1)[: sampling.logprobs]
        top = most[np.lexsort((most, -logits[most]))].tolist()
    return Sampled(token, float(shifted[token]) - total, tuple((one, float(shifted[one]) - total) for one in top))


def uniform(seed: int, position: int) -> float:
    """A number of [0, 1), the position-th of a seed."""
    return (mix(seed + (position + 1) * _GOLDEN) >> 11) * 2.0**-53


def mix(number: int) -> int:
    """64 bits that look random: the output function of SplitMix64."""
    number &= _WORD
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _WORD
    return number ^ number >> 31
