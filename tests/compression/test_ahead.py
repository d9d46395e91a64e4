"""What a search may ask for next: the first thing is what it does ask for, and nothing else can come."""

import random
from functools import partial
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compression.test_search import OPT, additive, only, problems
from tilepress.compression.ahead import questions
from tilepress.compression.search import brute_force, cheapest_first, search, uniform


def asked(find, perplexity):
    """Everything that a search asks for, in order."""
    order = []
    find(lambda mantissas: order.append(mantissas) or perplexity(mantissas))
    return list(dict.fromkeys(order))


def next_ones(find, known, count):
    return list(islice(dict.fromkeys(islice(questions(find, known.get), 200)), count))


def test_the_reference_then_both_ways():
    find = partial(search, products=OPT, tolerance=0.01)
    shorter = (4, 4, 3, 4)  # which saves most
    assert next_ones(find, {}, 4) == [None, uniform(4), uniform(5), shorter]
    assert next_ones(find, {uniform(4): 1.0}, 3) == [None, uniform(5), shorter]
    assert next_ones(find, {None: 1.0, uniform(4): 2.0}, 2) == [uniform(5), uniform(6)]
    assert next_ones(find, {None: 1.0, uniform(4): 1.0}, 3) == [shorter, (4, 4, 4, 3), (4, 4, 2, 4)]


def test_brute_force_asks_in_the_order_of_cost():
    find = partial(brute_force, products=OPT, tolerance=0.01, least=4, most=6)
    assert next_ones(find, {}, 10) == [None, *cheapest_first(OPT, 4, 6)[:9]]


@pytest.mark.parametrize("find", [search, partial(brute_force, most=7)])
def test_nothing_is_left_when_all_is_known(find):
    find = partial(find, products=OPT, tolerance=0.01)
    perplexity = only(7, 7, 6, 5)
    known = {mantissas: perplexity(mantissas) for mantissas in asked(find, perplexity)}
    assert list(questions(find, known.get)) == []


@settings(max_examples=30)
@given(problem=problems, limit=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_what_is_asked_for_is_among_the_questions(problem, limit, seed):
    """Whatever is known already, and however the rest is answered."""
    sensitivities, products, tolerance = problem
    perplexity = additive(*sensitivities)
    find = partial(search, products=products, tolerance=tolerance, limit=limit)
    order = asked(find, perplexity)
    known = {
        mantissas: perplexity(mantissas) for mantissas in order if random.Random(f"{seed} {mantissas}").random() < 0.7
    }
    left = [mantissas for mantissas in order if mantissas not in known]
    if left:
        assert next(questions(find, known.get)) == left[0]
        assert {*left} <= {*questions(find, known.get)}
