"""The native sampler against its specification in numpy, and what it refuses."""

from array import array
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tilepress import _native
from tilepress.engine import Sampling
from tilepress.engine.sampler import Failed, sample, sample_numbers
from tilepress.engine.sampler_reference import adjust, candidates, sample_row

LAST = 1 - 2**-53  # the largest number
SIZES = [1, 2, 255, 256, 257, 1024, 5003]
MASK = torch.arange(5003) % 3 == 0


@dataclass
class Row:
    sampling: Sampling
    tokens: array
    prompt: int
    seed: int = 0


def row(vocabulary, **options):
    tokens = [one % vocabulary for one in (3, 5, 3, 7, 7, 9, 7)]
    return Row(Sampling(**options), array("q", tokens), 3)


def mask_of(vocabulary):
    return lambda answer: MASK[:vocabulary]


def logits_of(vocabulary, seed=0, scale=3.0):
    return torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


def natively(logits, own, numbers, threads=1):
    return sample_numbers(logits[None].expand(len(numbers), -1), [own] * len(numbers), numbers, threads)


def options_of(vocabulary):
    """Of temperature and everything that leaves tokens out, alone and together."""
    yield {}
    for top_k in (1, 2, 7, 40, 256, 1000, vocabulary - 1, vocabulary):
        yield {"top_k": max(top_k, 0)}
    for share in (1e-9, 0.1, 0.5, 0.9, 0.95, 0.999):
        yield {"top_p": share}
        yield {"typical_p": share}
        yield {"min_p": share}
    yield {"top_k": 50, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.8}
    yield {"top_k": 900, "top_p": 0.99, "min_p": 1e-5, "typical_p": 0.95}
    yield {"mask": mask_of(vocabulary), "top_p": 0.9, "repetition_penalty": 1.3, "frequency_penalty": 0.4}


def assert_specified(logits, own):
    """A number in the middle of each token's share stands for it, 0 for the first token and LAST for the last one; tiny
    shares are left out."""
    ids, weights = candidates(adjust(logits.numpy(), own), own.sampling)
    sums = weights.cumsum(dtype=np.float64)
    wide = weights > 1e-4 * sums[-1]
    expected = [*ids[wide].tolist(), int(ids[0])] + [int(ids[-1])] * bool(wide[-1])
    numbers = [*((sums - weights / 2) / sums[-1])[wide].tolist(), 0.0, LAST][: len(expected)]
    assert [sampled.token for sampled in natively(logits, own, numbers)] == expected, own.sampling


@pytest.mark.parametrize("vocabulary", SIZES)
@pytest.mark.parametrize("temperature, scale", [(1.0, 3.0), (0.7, 0.5), (1.8, 9.0)])
def test_each_number_stands_for_the_token_of_the_specification(vocabulary, temperature, scale):
    for seed, options in enumerate(options_of(vocabulary)):
        assert_specified(logits_of(vocabulary, seed, scale), row(vocabulary, temperature=temperature, **options))


@pytest.mark.parametrize("values", [[0.0], [0.0, -3.0], [5.0, 5.0, 4.0, -float("inf")], [1.0, 1.0 - 2**-24, 0.5]])
def test_equal_and_nearly_equal_logits_are_as_in_the_specification(values):
    logits = torch.tensor(values).repeat(700)
    for options in options_of(len(logits)):
        assert_specified(logits, row(len(logits), temperature=1.0, **options))


CHANGES = [
    {},
    {"logit_bias": {0: 2.5, 1: -float("inf")}},
    {"logit_bias": {0: -1e300}},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.4, "presence_penalty": -0.7},
    {"presence_penalty": 0.6, "frequency_penalty": 0.3},
    {"frequency_penalty": 1e300},
    {"repetition_penalty": 1e-60},
    {"logit_bias": {0: 1.0}, "repetition_penalty": 1.2, "presence_penalty": 0.1, "frequency_penalty": 0.2},
]


@pytest.mark.parametrize("logprobs", [None, 0, 1, 5, 300, 10_000])
@pytest.mark.parametrize("vocabulary", [2, 256, 5003])
def test_greedy_rows_and_log_probabilities_are_those_of_the_specification(vocabulary, logprobs):
    for seed, options in enumerate(CHANGES):
        for mask in (None, mask_of(vocabulary)):
            own = row(vocabulary, logprobs=logprobs, mask=mask, **options)
            logits = logits_of(vocabulary, seed)
            logits[vocabulary // 2] = -float("inf")
            (actual,), wanted = natively(logits, own, [0.0]), sample_row(logits.numpy(), own, 0.0)
            if isinstance(wanted, Failed):
                assert actual == wanted
                continue
            assert actual.token == wanted.token
            assert actual.logprob == (wanted.logprob if logprobs is None else pytest.approx(wanted.logprob, abs=1e-5))
            assert [one for one, _ in actual.top] == [one for one, _ in wanted.top]
            assert [one for _, one in actual.top] == pytest.approx([one for _, one in wanted.top], abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1e-300, 1e300])
def test_rows_that_fail_give_the_reasons_of_the_specification(temperature):
    infinity, nan = float("inf"), float("nan")
    for place in (0, 300, 1023):
        for values in ([nan], [infinity], [-infinity], [nan, infinity], [-infinity, nan]):
            logits = logits_of(1024)
            logits[place : place + 1] = values[0]
            logits[place // 2] = values[-1]
            own = row(1024, temperature=temperature)
            wanted = sample_row(logits.numpy(), own, 0.5)
            assert natively(logits, own, [0.5]) == [wanted]
            assert isinstance(wanted, Failed) == (nan in values or infinity in values)
    own = row(1024, temperature=temperature, mask=lambda answer: 1 / 0)  # logits that are not numbers come first
    for value, reason in ((-infinity, "logits are not numbers"), (0.0, "the mask failed: division by zero")):
        assert natively(torch.full((1024,), value), own, [0.5]) == [Failed(reason)]


def test_every_instruction_set_gives_the_tokens_of_the_specification(isa):
    for seed, options in enumerate(options_of(5003)):
        assert_specified(logits_of(5003, seed), row(5003, temperature=0.9, logprobs=3, **options))


def test_threads_and_other_rows_change_nothing():
    logits = torch.stack([logits_of(20_000, seed) for seed in range(12)])
    rows = [
        row(20_000, temperature=0.8, logprobs=2, **options)
        for options in (
            {},
            {"top_k": 30},
            {"top_p": 0.9},
            {"typical_p": 0.7},
            {"min_p": 0.1},
            {"presence_penalty": 1.0},
        )
    ] * 2
    alone = [sample(logits[index : index + 1], [own], 1)[0] for index, own in enumerate(rows)]
    for threads in (1, 2, 3, 16):
        assert sample(logits, rows, threads) == alone
        assert sample(logits.flip(0), rows[::-1], threads) == alone[::-1]


def test_logits_and_masks_may_have_any_strides():
    logits, mask = torch.stack([logits_of(600), logits_of(600, 1)], 1), MASK[:1200].clone()
    mask[1::2] = True
    own = row(600, temperature=1.0, mask=lambda answer: mask[::2])
    expected = [sample_row(logits[:, index].numpy(), own, 0.4) for index in range(2)]
    assert sample_numbers(logits.T, [own] * 2, [0.4, 0.4]) == expected


GOOD = (1.0, 0, 1.0, 0.0, 1.0, 0.5, -1, None)
IDS, BIASES, TOKENS, BYTES = np.array([1]), np.array([1.0], np.float32), array("q", [1, 2]), np.ones(10, np.uint8)
CHANGED = (IDS, BIASES, TOKENS, 1, 1.0, 0.0, 0.0, BYTES)


def with_part(parts, place, value):
    return (*parts[:place], value, *parts[place + 1 :])


@pytest.mark.parametrize(
    "parts, message",
    [
        (with_part(GOOD, 0, -1.0), "a temperature is 0 or more"),
        (with_part(GOOD, 0, float("nan")), "a temperature is 0 or more"),
        (with_part(GOOD, 1, -1), "top_k is 0 or more"),
        (with_part(GOOD, 2, 0.0), "top_p is above 0 and at most 1"),
        (with_part(GOOD, 3, 1.5), "min_p is between 0 and 1"),
        (with_part(GOOD, 4, float("nan")), "typical_p is above 0 and at most 1"),
        (with_part(GOOD, 5, 1.0), "a number to draw by is at least 0 and below 1"),
        (with_part(GOOD, 7, with_part(CHANGED, 0, np.array([10]))), "there is no token 10"),
        (with_part(GOOD, 7, with_part(CHANGED, 0, np.array([1, 2]))), "each biased token has a bias"),
        (with_part(GOOD, 7, with_part(CHANGED, 2, array("q", [3, -1]))), "there is no token -1"),
        (with_part(GOOD, 7, with_part(CHANGED, 3, 3)), "a prompt is part of the tokens"),
        (with_part(GOOD, 7, with_part(CHANGED, 3, -1)), "a prompt is part of the tokens"),
        (with_part(GOOD, 7, with_part(CHANGED, 7, BYTES[:9])), "a mask has a value for each token"),
        (with_part(GOOD, 7, with_part(CHANGED, 7, BYTES[:0])), "a mask has a value for each token"),
    ],
)
def test_native_code_refuses(parts, message):
    sampler, logits = _native.Sampler(), np.zeros((2, 10), np.float32)
    assert [token for token, _, _ in sampler.sample(logits, [GOOD, with_part(GOOD, 7, CHANGED)], 1)] == [5, 4]
    with pytest.raises(ValueError, match=message):
        sampler.sample(logits, [GOOD, parts], 1)


def test_native_code_refuses_other_numbers_of_rows():
    sampler = _native.Sampler()
    with pytest.raises(ValueError, match="there is a row for each row of logits"):
        sampler.sample(np.zeros((2, 10), np.float32), [GOOD], 1)
    with pytest.raises(ValueError, match="there are no tokens"):
        sampler.sample(np.zeros((1, 0), np.float32), [GOOD], 1)
    with pytest.raises(ValueError, match="at least one thread is needed"):
        sampler.sample(np.zeros((1, 10), np.float32), [GOOD], 0)


def test_largest_and_smallest_integers_of_native_rows():
    most = 2**63 - 1
    rows = [with_part(with_part(GOOD, 1, most), 6, most), with_part(GOOD, 6, -most)]
    (_, _, every), (_, _, none) = _native.Sampler().sample(np.zeros((2, 10), np.float32), rows, 1)
    assert [one for one, _ in every] == list(range(10)) and none == []
