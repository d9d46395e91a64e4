"""Requests of a load: their lengths and times have the distributions that are said, and a seed gives them again."""

from itertools import islice, pairwise

import numpy as np
import pytest

from tilepress.bench.arrivals import Lengths, Load, arrivals

MANY = 4000


@pytest.mark.parametrize("text, least, most", [("128", 128, 128), ("32-512", 32, 512), ("7-7", 7, 7), ("1", 1, 1)])
def test_lengths(text, least, most):
    lengths = Lengths.parse(text)
    assert (lengths.least, lengths.most) == (least, most)
    assert lengths.label == (least if least == most else text)


@pytest.mark.parametrize("text", ["", "0", "x", "-3", "3-", "5-4", "0-4", "1.5", "1-2-3", " 4", "٣", "9" * 5000])
def test_what_is_no_length(text):
    with pytest.raises(ValueError, match="a length is a number of tokens, 128 say, or a range such as 32-512; not"):
        Lengths.parse(text)


@pytest.mark.parametrize("rate", [0.5, 20.0])
def test_a_rate_is_a_poisson_process(rate):
    """Times between requests are exponential, as numpy draws them: all quantiles are near, and so are counts."""
    load = Load(requests=MANY, rate=rate, prompt=Lengths(1, 1), tokens=Lengths(1, 1))
    times = [one.seconds for one in arrivals(load, 10)]
    gaps = [after - before for before, after in pairwise(times)]
    drawn = np.random.default_rng(0).exponential(1 / rate, 100 * MANY)
    ranks = np.arange(5, 96, 5)
    assert times[0] == 0 and np.mean(gaps) == pytest.approx(1 / rate, rel=0.05)
    np.testing.assert_allclose(np.percentile(gaps, ranks), np.percentile(drawn, ranks), rtol=0.15)
    counts = np.bincount((np.array(times) * rate / 4).astype(int))[:-1]  # in periods of 4 requests each
    assert counts.mean() == pytest.approx(4, rel=0.05) and counts.var() == pytest.approx(4, rel=0.15)


def test_lengths_and_tokens_are_uniform():
    load = Load(requests=MANY, concurrency=1, prompt=Lengths(3, 12), tokens=Lengths(1, 4))
    given = list(arrivals(load, 16))
    for lengths, drawn in ((load.prompt, [len(one.prompt) for one in given]), (load.tokens, [o.tokens for o in given])):
        counts = np.bincount(drawn, minlength=lengths.most + 1)[lengths.least :]
        expected = MANY / len(counts)
        assert len(counts) == lengths.most + 1 - lengths.least
        np.testing.assert_allclose(counts, expected, atol=5 * expected**0.5)
    ids = np.bincount([token for one in given for token in one.prompt])
    assert len(ids) == 16 and ids.min() > 0.9 * ids.mean() and ids.max() < 1.1 * ids.mean()


def test_a_seed_gives_the_same_requests_however_they_come():
    lengths = {"prompt": Lengths(4, 9), "tokens": Lengths(1, 5), "prefix": 3}

    def requests(seed, **coming):
        return [(one.prompt, one.tokens) for one in arrivals(Load(requests=20, seed=seed, **coming, **lengths), 50)]

    assert requests(1, rate=2.0) == requests(1, rate=0.5) == requests(1, concurrency=4)
    assert requests(1, rate=2.0) != requests(2, rate=2.0)
    slow, fast = (list(arrivals(Load(requests=20, rate=rate, **lengths), 50)) for rate in (1.0, 4.0))
    assert [one.seconds / 4 for one in slow] == pytest.approx([one.seconds for one in fast])


def test_prompts_share_their_prefix_and_nothing_else():
    load = Load(requests=30, concurrency=1, prompt=Lengths(8, 20), prefix=6)
    prompts = [one.prompt for one in arrivals(load, 1000)]
    assert len({tuple(prompt[:6]) for prompt in prompts}) == 1
    assert len({tuple(prompt[6:8]) for prompt in prompts}) == 30
    assert all(8 <= len(prompt) <= 20 for prompt in prompts)


def test_requests_are_drawn_one_at_a_time():
    load = Load(requests=10**9, rate=1.0)
    assert len(list(islice(arrivals(load, 10), 3))) == 3


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({}, "requests come at a rate or with a concurrency: give one of the two"),
        ({"rate": 1.0, "concurrency": 2}, "give one of the two"),
        ({"rate": 0.0}, "a rate is 0.001 to 1e\\+06 requests a second, not 0"),
        ({"rate": -1.0}, "not -1"),
        ({"rate": float("nan")}, "not nan"),
        ({"rate": float("inf")}, "not inf"),
        ({"rate": 1.0, "prefix": 129}, "a prefix of 129 tokens is longer than a prompt of 128"),
        ({"rate": 1.0, "prefix": 5, "prompt": Lengths(4, 9)}, "longer than a prompt of 4"),
    ],
)
def test_loads_that_cannot_be(wrong, message):
    with pytest.raises(ValueError, match=message):
        Load(**wrong)


def test_a_load_in_words():
    load = Load(requests=9, rate=2.5, prompt=Lengths(32, 64), tokens=Lengths(8, 8), prefix=16)
    assert str(load) == "9 requests, 2.5 a second: prompts of 32-64 tokens, 16 of them shared, answers of 8"
    assert str(Load(concurrency=3)) == "64 requests, 3 at a time: prompts of 128 tokens, answers of 64"
