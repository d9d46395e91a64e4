"""Choosing tokens, against transformers' own processors of logits, and against what the distribution says."""

from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from transformers.generation import logits_process as hf

from tilepress.engine import Sampling
from tilepress.engine.sampler import Failed, Sampled, mix, sample, sample_numbers, uniform
from tilepress.engine.sampler_reference import adjust, candidates, draw

VOCABULARY = 300
ROWS = 6


@dataclass
class Row:
    sampling: Sampling
    tokens: array
    prompt: int
    seed: int = 0


def row(prompt=(3, 5, 3), answer=(7, 7, 9), seed=0, **options):
    return Row(Sampling(**options), array("q", prompt + answer), len(prompt), seed)


def random_logits(seed=0, rows=ROWS, vocabulary=VOCABULARY, scale=3.0):
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


def distribution(logits, own):
    """Probabilities [vocabulary] of a row."""
    ids, weights = candidates(adjust(logits.numpy(), own), own.sampling)
    probabilities = torch.zeros(len(logits))
    probabilities[torch.from_numpy(ids)] = torch.from_numpy(weights)
    return probabilities / probabilities.sum()


def drawn(logits, own, numbers):
    """Tokens of a row that these numbers stand for."""
    table = logits[None].expand(len(numbers), -1)
    return [sampled.token for sampled in sample_numbers(table, [own] * len(numbers), numbers)]


def expected(logits, own, *processors):
    """The same by transformers."""
    ids = torch.tensor([own.tokens.tolist()])
    scores = logits[None].clone()
    for processor in processors:
        scores = processor(ids, scores)
    return scores[0].softmax(-1)


def allowed(*ids):
    mask = torch.zeros(VOCABULARY, dtype=torch.bool)
    mask[list(ids)] = True
    return mask


BIAS = {3: 5.0, 7: -4.0, 200: 1.5}
ORACLES = [
    ({"temperature": 0.5}, [hf.TemperatureLogitsWarper(0.5)]),
    ({"temperature": 1.7}, [hf.TemperatureLogitsWarper(1.7)]),
    ({"top_k": 1}, [hf.TopKLogitsWarper(1)]),
    ({"top_k": 40}, [hf.TopKLogitsWarper(40)]),
    ({"top_k": 1000}, [hf.TopKLogitsWarper(1000)]),
    ({"top_p": 1e-9}, [hf.TopPLogitsWarper(1e-9)]),
    ({"top_p": 0.5}, [hf.TopPLogitsWarper(0.5)]),
    ({"top_p": 0.95}, [hf.TopPLogitsWarper(0.95)]),
    ({"min_p": 0.05}, [hf.MinPLogitsWarper(0.05)]),
    ({"min_p": 1.0}, [hf.MinPLogitsWarper(1.0)]),
    ({"typical_p": 0.3}, [hf.TypicalLogitsWarper(0.3)]),
    ({"typical_p": 0.9}, [hf.TypicalLogitsWarper(0.9)]),
    ({"logit_bias": BIAS}, [hf.SequenceBiasLogitsProcessor([[[one], bias] for one, bias in BIAS.items()])]),
    ({"repetition_penalty": 1.3}, [hf.RepetitionPenaltyLogitsProcessor(1.3)]),
    ({"repetition_penalty": 0.6}, [hf.RepetitionPenaltyLogitsProcessor(0.6)]),
    (
        {"mask": lambda answer: allowed(*answer, 100, 101)},
        [hf.PrefixConstrainedLogitsProcessor(lambda _, ids: [7, 9, 100, 101], 1)],
    ),
    ({"top_k": 40, "top_p": 0.8}, [hf.TopKLogitsWarper(40), hf.TopPLogitsWarper(0.8)]),
    (
        {"temperature": 1.4, "top_k": 50, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.8},
        [
            hf.TemperatureLogitsWarper(1.4),
            hf.TopKLogitsWarper(50),
            hf.TopPLogitsWarper(0.9),
            hf.MinPLogitsWarper(0.02),
            hf.TypicalLogitsWarper(0.8),
        ],
    ),
    (
        {"logit_bias": BIAS, "repetition_penalty": 1.3, "temperature": 0.8, "top_p": 0.9},
        [
            hf.SequenceBiasLogitsProcessor([[[one], bias] for one, bias in BIAS.items()]),
            hf.RepetitionPenaltyLogitsProcessor(1.3),
            hf.TemperatureLogitsWarper(0.8),
            hf.TopPLogitsWarper(0.9),
        ],
    ),
]


@pytest.mark.parametrize("options, processors", ORACLES, ids=["+".join(options) for options, _ in ORACLES])
def test_distributions_are_those_of_transformers(options, processors):
    own = row(**{"temperature": 1.0, **options})
    for logits in random_logits():
        actual, wanted = distribution(logits, own), expected(logits, own, *processors)
        assert torch.equal(actual > 0, wanted > 0)
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("options, processors", ORACLES, ids=["+".join(options) for options, _ in ORACLES])
def test_shares_of_tokens_are_those_of_transformers(options, processors):
    own, numbers = row(**{"temperature": 1.0, **options}), [(place + 0.5) / 2000 for place in range(2000)]
    for logits in random_logits(rows=2):
        shares = torch.bincount(torch.tensor(drawn(logits, own, numbers)), minlength=VOCABULARY) / len(numbers)
        wanted = expected(logits, own, *processors)
        assert ((shares - wanted).abs() <= 1 / len(numbers) + 1e-5).all()


@pytest.mark.parametrize("options", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.9}, {"typical_p": 0.5}])
def test_equally_probable_tokens_are_all_kept(options):
    logits = torch.tensor([2.0, 2.0, 2.0, 2.0, -9.0])
    probabilities = distribution(logits, row(prompt=(0,), answer=(), temperature=1.0, **options))
    assert probabilities.tolist() == [0.25, 0.25, 0.25, 0.25, 0.0]
    assert drawn(logits, row(prompt=(0,), answer=(), temperature=1.0, **options), [0.1, 0.3, 0.6, 0.99]) == [0, 1, 2, 3]


def test_presence_and_frequency_count_tokens_of_the_answer_alone():
    logits, own = random_logits()[0], row(presence_penalty=0.5, frequency_penalty=0.25)
    wanted = logits.clone()
    for token, count in Counter((7, 7, 9)).items():
        wanted[token] -= 0.5 + 0.25 * count
    torch.testing.assert_close(torch.from_numpy(adjust(logits.numpy(), own)), wanted)


def test_logits_are_not_changed():
    logits = random_logits()
    before = logits.clone()
    mask = allowed(3)
    sample(logits, [row(logit_bias=BIAS, repetition_penalty=2.0, mask=lambda _: mask, temperature=1.0)] * ROWS)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("logprobs", [0, 1, 5, VOCABULARY, 2 * VOCABULARY])
def test_log_probabilities_are_those_of_the_model(logprobs):
    logits, own = random_logits(), row(logprobs=logprobs, logit_bias={200: 99.0})
    wanted = logits.log_softmax(-1)
    for index, sampled in enumerate(sample(logits, [own] * ROWS)):
        assert sampled.token == 200 and sampled.logprob == pytest.approx(wanted[index, 200].item(), abs=1e-4)
        values, ids = wanted[index].topk(min(logprobs, VOCABULARY))
        assert [one for one, _ in sampled.top] == ids.tolist()
        assert [value for _, value in sampled.top] == pytest.approx(values.tolist(), abs=1e-4)


def test_greedy_rows_take_the_most_probable_token():
    logits = random_logits()
    assert sample(logits, [row()] * ROWS) == [Sampled(token) for token in logits.argmax(-1).tolist()]
    assert sample(logits[:0], []) == []
    assert sample(torch.zeros(1, 1000), [row()]) == [Sampled(0)]  # the first of equal ones


def test_a_greedy_row_with_options_takes_the_most_probable_token_after_them():
    logits = random_logits()
    best = logits.argmax(-1).tolist()
    banned = row(logit_bias={token: -float("inf") for token in best})
    wanted = logits.clone()
    wanted[:, best] = -float("inf")
    assert [sampled.token for sampled in sample(logits, [banned] * ROWS)] == wanted.argmax(-1).tolist()


MIXED = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.2, "top_k": 20, "min_p": 0.01},
    {"repetition_penalty": 1.5, "logprobs": 3},
    {"temperature": 1.0, "typical_p": 0.5, "frequency_penalty": 1.0},
]


def test_a_row_is_the_same_alone_and_in_any_batch():
    logits = random_logits(vocabulary=5000)
    rows = [row(seed=index, **options) for index, options in enumerate(MIXED)]
    together = sample(logits, rows)
    assert together == [sample(logits[index : index + 1], [own])[0] for index, own in enumerate(rows)]
    assert together[::-1] == sample(logits.flip(0), rows[::-1])


@pytest.mark.parametrize("options", [{}, {"top_p": 0.8}, {"top_k": 5}, {"typical_p": 0.7}, {"min_p": 0.1}])
def test_tokens_are_drawn_as_often_as_their_probability_says(options):
    draws, logits = 20_000, random_logits(seed=3, rows=1, vocabulary=20, scale=1.0)[0]
    own = row(prompt=(0,), answer=(), temperature=1.0, **options)
    counts = Counter(drawn(logits, own, [uniform(mix(5), position) for position in range(draws)]))
    wanted = distribution(logits, own) * draws
    assert counts.keys() <= set(wanted.nonzero().flatten().tolist())
    chi_squared = sum((counts[token] - count) ** 2 / count for token, count in enumerate(wanted.tolist()) if count)
    freedom = int((wanted > 0).sum()) - 1
    assert chi_squared < freedom + 4 * (2 * freedom) ** 0.5


def test_numbers_of_seeds_and_positions_are_uniform_and_differ():
    numbers = [uniform(mix(seed), position) for seed in range(100) for position in range(200)]
    assert len(set(numbers)) == len(numbers) and min(numbers) >= 0 and max(numbers) < 1
    tenths = Counter(int(number * 10) for number in numbers)
    assert sum((count - 2000) ** 2 / 2000 for count in tenths.values()) < 9 + 4 * 18**0.5
    steps = [(one - 0.5) * (other - 0.5) for one, other in pairwise(numbers)]
    assert abs(sum(steps) / len(steps)) < 4 / 12 / len(steps) ** 0.5


def test_each_token_of_an_answer_has_a_number_of_its_own():
    logits = torch.zeros(1, VOCABULARY)
    for count in range(50):
        own = row(answer=(7,) * count, seed=3, temperature=1.0)
        assert sample(logits, [own])[0].token == int(uniform(3, count) * VOCABULARY)


def test_the_largest_and_the_smallest_number_are_tokens():
    logits, numbers = torch.tensor([-float("inf"), 0.0, -200.0, 0.0, -float("inf")]), [0.0, 1 - 2**-53]
    own = row(prompt=(0,), answer=(), temperature=1.0)
    assert [draw(logits.numpy(), own.sampling, number) for number in numbers] == [1, 3]
    assert drawn(logits, own, numbers) == [1, 3]


def test_a_very_low_temperature_is_greedy():
    logits = random_logits()
    for temperature in (1e-30, 5e-324):
        tokens = [sampled.token for sampled in sample(logits, [row(temperature=temperature)] * ROWS)]
        assert tokens == logits.argmax(-1).tolist()


def broken(answer):
    raise OSError("no grammar")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "value, options, reason",
    [
        (float("nan"), {}, "logits are not numbers"),
        (float("inf"), {}, "logits are not numbers"),
        (0.0, {"mask": lambda answer: allowed()}, "no token is allowed"),
        (0.0, {"mask": broken}, "the mask failed: no grammar"),
        (0.0, {"mask": lambda answer: allowed()[:-1]}, "the mask failed: a mask is bool [300], not torch.bool [299]"),
        (
            0.0,
            {"mask": lambda answer: allowed().long()},
            "the mask failed: a mask is bool [300], not torch.int64 [300]",
        ),
        (0.0, {"logit_bias": {one: -float("inf") for one in range(VOCABULARY)}}, "no token is allowed"),
        (3e38, {"logit_bias": {4: 3e38}}, "logits are not numbers"),
    ],
)
def test_a_row_that_fails_fails_alone(value, options, reason, temperature):
    logits = random_logits()
    logits[1, 4] = value
    rows = [row(temperature=temperature, seed=index) for index in range(ROWS)]
    right = sample(random_logits(), rows)
    rows[1] = row(temperature=temperature, **options)
    actual = sample(logits, rows)
    assert actual[1] == Failed(reason)
    assert actual[:1] + actual[2:] == right[:1] + right[2:]


def test_a_mask_of_none_allows_all():
    logits = random_logits()
    assert sample(logits, [row(mask=lambda answer: None)] * ROWS) == sample(logits, [row()] * ROWS)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_tokens": 0}, "max_tokens is an integer, 1 or more, not 0"),
        ({"max_tokens": 1.5}, "max_tokens is an integer, 1 or more, not 1.5"),
        ({"n": 0}, "n is an integer, 1 or more, not 0"),
        ({"n": None}, "n is an integer, 1 or more, not None"),
        ({"n": True}, "n is an integer, 1 or more, not True"),
        ({"n": 3, "best_of": 2}, "best_of, 2, is less than n, 3"),
        ({"seed": -1}, "seed is an integer, 0 or more, not -1"),
        ({"logprobs": -1}, "logprobs is an integer, 0 or more, not -1"),
        ({"top_k": -1}, "top_k is an integer, 0 or more, not -1"),
        ({"temperature": -0.1}, "temperature is a number, 0 or more, not -0.1"),
        ({"temperature": float("nan")}, "temperature is a number, 0 or more, not nan"),
        ({"temperature": float("inf")}, "temperature is a number, 0 or more, not inf"),
        ({"temperature": "hot"}, "temperature is a number, 0 or more, not 'hot'"),
        ({"top_p": 0.0}, "top_p is a number, above 0 and at most 1, not 0.0"),
        ({"top_p": 1.1}, "top_p is a number, above 0 and at most 1, not 1.1"),
        ({"min_p": -0.1}, "min_p is a number, between 0 and 1, not -0.1"),
        ({"typical_p": 0}, "typical_p is a number, above 0 and at most 1, not 0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is a number, positive, not 0.0"),
        ({"presence_penalty": float("inf")}, "presence_penalty is a number, not infinite, not inf"),
        ({"frequency_penalty": None}, "frequency_penalty is a number, not infinite, not None"),
        ({"stop": "end"}, "stop is several texts, none of them empty, not 'end'"),
        ({"stop": ("",)}, r"stop is several texts, none of them empty, not \(''"),
        ({"stop_tokens": [-1]}, r"stop_tokens has ids of tokens, not \[-1\]"),
        ({"stop_tokens": 5}, "stop_tokens has ids of tokens, not 5"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias has ids of tokens"),
        ({"logit_bias": {1: float("nan")}}, "values of logit_bias are numbers, or -inf"),
        ({"logit_bias": {1: float("inf")}}, "values of logit_bias are numbers, or -inf"),
    ],
)
def test_what_cannot_be_asked_for(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)
