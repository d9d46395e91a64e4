"""What the native sampler computes, one row at a time in numpy: slow, plain, and the specification of `sampler.py`.

A token's score is its logit less the largest, over the temperature; e^score is its weight. Both compute the same
scores, and order tokens by them, so equally probable ones are alike. Weights and their sums are rounded in other ways:
where a share of top_p or typical_p, or the number that is drawn, is within 1e-5 of where a token begins, they may
differ.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sampler import NONE_ALLOWED, NOT_NUMBERS, Failed, Row, Sampled, mask_of
from .sampling import Sampling

LEAST_SCORE = -87.0  # below it, weights are 0
COLDEST, HOTTEST = 1e-37, 1e37  # temperatures

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.integer[Any]]
Kept = NDArray[np.bool_]


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # what comes of it is looked at
def sample_row(logits: Floats, row: Row, number: float) -> Sampled | Failed:
    """The token of float32 logits [vocabulary] that a number of [0, 1) stands for."""
    if not np.isfinite(logits.max()):
        return Failed(NOT_NUMBERS)
    adjusted, sampling = adjust(logits, row), row.sampling
    largest = adjusted.max()
    if not np.isfinite(largest):
        return Failed(NONE_ALLOWED if largest < 0 else NOT_NUMBERS)
    token = draw(adjusted, sampling, number) if sampling.temperature else int(adjusted.argmax())
    return _with_logprobs(logits, token, sampling) if sampling.wants_logprobs else Sampled(token)


def adjust(logits: Floats, row: Row) -> Floats:
    """A row's logits after bias, penalties and mask."""
    logits, sampling = logits.copy(), row.sampling
    if sampling.logit_bias:
        logits[list(sampling.logit_bias)] += np.array(list(sampling.logit_bias.values()), np.float32)
    _penalize(logits, row)
    mask = mask_of(row, len(logits))
    if mask is not None:
        logits[mask == 0] = -np.inf
    return logits


def _penalize(logits: Floats, row: Row) -> None:
    sampling, seen = row.sampling, np.array(row.tokens)
    answer = seen[row.prompt :]
    if sampling.repetition_penalty != 1:
        values, factor = logits[seen], np.float32(sampling.repetition_penalty)
        logits[seen] = np.where(values < 0, values * factor, values / factor)
    logits[answer] -= np.float32(sampling.presence_penalty)  # once, however often a token is there
    np.subtract.at(logits, answer, np.float32(sampling.frequency_penalty))


def draw(logits: Floats, sampling: Sampling, number: float) -> int:
    """The first token up to which the weights of those that may be drawn sum to more than this share of all."""
    ids, weights = candidates(logits, sampling)
    sums = weights.cumsum(dtype=np.float64)
    return int(ids[np.searchsorted(sums, number * sums[-1], side="right")])


def candidates(logits: Floats, sampling: Sampling) -> tuple[Ids, Floats]:
    """Tokens that may be drawn, and their weights."""
    temperature = min(max(sampling.temperature, COLDEST), HOTTEST)
    scores = (logits - logits.max()) * np.float32(1 / temperature)
    ids = np.flatnonzero(scores >= LEAST_SCORE)
    filters: list[Callable[[Floats, Sampling], Kept]] = [_most_probable, _of_mass, _probable, _typical]
    for which in filters:
        ids = ids[which(scores[ids], sampling)]
    return ids, np.exp(scores[ids])


def _most_probable(scores: Floats, sampling: Sampling) -> Kept:
    rank = sampling.top_k if 0 < sampling.top_k < len(scores) else len(scores)
    least: Kept = scores >= np.sort(scores)[-rank]
    return least


def _of_mass(scores: Floats, sampling: Sampling) -> Kept:
    return _until_share(-scores, scores, sampling.top_p)


def _probable(scores: Floats, sampling: Sampling) -> Kept:
    kept: Kept = scores >= np.float32(np.log(sampling.min_p) if sampling.min_p else -np.inf)
    return kept


def _typical(scores: Floats, sampling: Sampling) -> Kept:
    """A token's surprise is how far its score is below a constant, so its distance from the mean is that of scores."""
    weights = np.exp(scores).astype(np.float64)
    mean = np.float32((weights * scores).sum() / weights.sum())
    return _until_share(np.abs(scores - mean), scores, sampling.typical_p)


def _until_share(keys: Floats, scores: Floats, share: float) -> Kept:
    """The tokens of the lowest keys, until their weights sum to this share of all; and those with the same key as the
    last of them."""
    order = np.argsort(keys, kind="stable")
    sums = np.exp(scores[order]).cumsum(dtype=np.float64)
    last = int(np.searchsorted(sums, share * sums[-1])) if share < 1 else len(sums) - 1
    kept: Kept = keys <= keys[order[last]]
    return kept


def _with_logprobs(logits: Floats, token: int, sampling: Sampling) -> Sampled:
    shifted = logits - logits.max()
    total = float(np.log(np.exp(shifted).sum(dtype=np.float64)))
    top = np.argsort(-logits, kind="stable")[: sampling.logprobs or 0].tolist()
    return Sampled(token, float(shifted[token]) - total, tuple((one, float(shifted[one]) - total) for one in top))
