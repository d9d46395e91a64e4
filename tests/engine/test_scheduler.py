"""What a step computes: budgets, order, shared prompts, preemption, forks."""

from array import array

import pytest
from tests.engine.toy import PAGE_TOKENS

from tilepress.engine.pages import PagePool
from tilepress.engine.scheduler import Scheduler
from tilepress.engine.sequence import TokenSequence


def scheduler(pages=32, step_tokens=16, max_sequences=8):
    return Scheduler(PagePool(pages), PAGE_TOKENS, step_tokens, min(max_sequences, step_tokens))


def sequence(length, arrival=0, priority=0, first=0, width=1):
    """Tokens first, first + 1 …"""
    tokens = array("q", range(first, first + length))
    return TokenSequence(tokens=tokens, prompt=length, order=(-priority, arrival, 0), width=width)


def step(own, token=99):
    """One step; sequences whose last token was computed get another. Returns each one's tokens computed, by arrival."""
    plan = own.schedule()
    own.commit(plan)
    for one, chunk in zip(plan.sequences, plan.chunks, strict=True):
        assert chunk.logits == (one.pending == 0)
        if chunk.logits:
            one.tokens.append(token)
    return {one.order[1]: len(chunk.tokens) for one, chunk in zip(plan.sequences, plan.chunks, strict=True)}


def add(own, *sequences):
    for one in sequences:
        own.add(one)
    return sequences


def test_long_prompts_are_computed_in_chunks_that_end_with_pages():
    own = scheduler(step_tokens=10)
    add(own, sequence(23))
    assert [step(own) for _ in range(4)] == [{0: 8}, {0: 8}, {0: 7}, {0: 1}]


def test_a_budget_below_a_page():
    own = scheduler(step_tokens=3)
    add(own, sequence(9))
    assert [step(own) for _ in range(5)] == [{0: 3}, {0: 1}, {0: 3}, {0: 2}, {0: 1}]


def test_decoding_goes_first_and_prompts_take_the_rest_by_priority_then_arrival():
    own = scheduler(step_tokens=9)
    add(own, sequence(4))
    step(own)
    add(own, sequence(6, 1, first=10), sequence(6, 2, first=20), sequence(20, 3, priority=1, first=30))
    assert step(own) == {0: 1, 3: 8}
    assert step(own) == {0: 1, 3: 8}
    assert step(own) == {0: 1, 3: 4, 1: 4}
    assert step(own) == {0: 1, 3: 1, 1: 2, 2: 4}
    assert step(own) == {0: 1, 3: 1, 1: 1, 2: 2}


def test_higher_priority_starts_before_a_long_prompt_is_done():
    own = scheduler(step_tokens=8)
    add(own, sequence(40))
    step(own)
    add(own, sequence(5, 1, first=50), sequence(5, 2, priority=1, first=60))
    assert step(own) == {2: 5, 0: 3} and [one.order[1] for one in own.waiting] == [1]


def test_a_prompt_that_others_compute_is_waited_for_and_then_shared():
    own = scheduler(step_tokens=32)
    first, second, other = add(own, sequence(10), sequence(12, 1), sequence(4, 2, first=50))
    assert step(own) == {0: 10, 2: 4}
    assert step(own) == {0: 1, 1: 4, 2: 1}
    assert second.pages[:2] == first.pages[:2] and own.prefix_tokens == 8
    assert not set(other.pages) & set(first.pages)


def test_the_last_token_of_a_prompt_is_always_computed():
    own = scheduler()
    (first,) = add(own, sequence(8))
    step(own)
    own.remove(first)
    (again,) = add(own, sequence(8, 1))
    assert step(own) == {1: 4} and again.cached == 8 and own.prefix_tokens == 4


def test_pages_of_an_answer_are_shared_too():
    own = scheduler()
    (first,) = add(own, sequence(3))
    for token in range(3, 12):
        step(own, token)
    own.remove(first)
    add(own, sequence(12, 1))
    assert step(own) == {1: 4} and own.prefix_tokens == 8


def test_a_sequence_starts_when_all_its_pages_are_free_and_one_more_for_each_that_runs():
    own = scheduler(pages=7)
    first, second = add(own, sequence(12), sequence(13, 1, first=50))
    assert step(own) == {0: 12} and own.waiting == [second]
    own.remove(first)
    assert step(own) == {1: 13}


def test_who_cannot_start_is_not_overtaken_by_arrival():
    own = scheduler(pages=6)
    _, large, small = add(own, sequence(12), sequence(20, 1, first=50), sequence(2, 2, first=90))
    step(own)
    assert own.waiting == [large, small]


def test_no_more_sequences_than_allowed_forks_among_them():
    own = scheduler(max_sequences=3)
    _, pair, last = add(own, sequence(2), sequence(2, 1, first=10, width=2), sequence(2, 2, first=20))
    assert step(own) == {0: 2, 1: 2} and own.waiting == [last]
    own.fork(pair, sequence(3, 3, first=10))
    assert own.waiting == [last] and len(own.running) == 3 and pair.width == 1
    own.remove(pair)
    assert 2 in step(own)


def test_without_a_free_page_the_lowest_priority_and_the_latest_loses_its_own():
    own = scheduler(pages=6)
    high, early, late = add(own, sequence(3, 2, priority=1), sequence(3, 0, first=20), sequence(3, 1, first=40))
    for _ in range(5):
        step(own)
    assert own.running == [high, early, late] and own.pool.free == 0 and own.preemptions == 0
    for _ in range(4):
        step(own)
    assert own.running == [high, early] and own.waiting == [late] and own.preemptions == 1
    assert late.pages == [] and late.cached == 0 and len(late.tokens) > 3


def test_the_last_in_order_gives_up_its_own_pages():
    own = scheduler(pages=4)
    first, last = add(own, sequence(4), sequence(4, 1, first=20))
    while own.preemptions == 0:
        step(own)
    assert own.running == [first] and own.waiting == [last]


def test_higher_priority_starts_in_place_of_lower_but_only_if_it_then_can():
    own = scheduler(pages=6, step_tokens=32)
    low, high = sequence(8), sequence(8, 1, priority=1, first=20)
    add(own, high)
    step(own)
    add(own, low)
    step(own)
    assert own.running == [high, low]
    (most,) = add(own, sequence(21, 2, priority=1, first=50))
    step(own)
    assert own.waiting == [most] and own.running == [high, low] and own.preemptions == 0
    (some,) = add(own, sequence(8, 3, priority=2, first=80))
    step(own)
    assert own.running == [some, high] and own.waiting == [most, low] and own.preemptions == 1


def test_equal_priority_does_not_take_pages_from_each_other_to_start():
    own = scheduler(pages=4)
    first, second = add(own, sequence(8), sequence(8, 1, first=20))
    step(own)
    assert own.running == [first] and own.waiting == [second]


def test_forks_share_pages_and_copy_one_that_is_partly_filled_before_they_write_to_it():
    own = scheduler()
    (parent,) = add(own, sequence(6, width=3))
    step(own)
    children = [sequence(7, 0, first=0), sequence(7, 1, first=0)]
    for child in children:
        own.fork(parent, child)
    shared = list(parent.pages)
    assert all(child.pages == shared for child in children) and own.pool.users[shared[1]] == 3
    plan = own.schedule()
    assert [source for source, _ in plan.copies] == [shared[1]] * 2  # the last one keeps the page
    pages = [chunk.pages for chunk in plan.chunks]
    assert {held[0] for held in pages} == {shared[0]} and len({held[1] for held in pages}) == 3
    own.commit(plan)
    assert own.pool.users[shared[0]] == 3 and not own.schedule().copies


def test_forks_of_full_pages_copy_nothing():
    own = scheduler()
    (parent,) = add(own, sequence(8, width=2))
    step(own)
    own.fork(parent, sequence(9, 1))
    plan = own.schedule()
    assert not plan.copies and plan.chunks[0].pages[:2] == plan.chunks[1].pages[:2]
    assert plan.chunks[0].pages[2] != plan.chunks[1].pages[2]


def test_the_last_user_of_a_page_writes_to_it_even_if_no_page_is_free():
    own = scheduler(pages=2)
    (parent,) = add(own, sequence(6, width=2))
    step(own)
    child = sequence(7, 1)
    own.fork(parent, child)
    plan = own.schedule()
    assert plan.sequences == [parent] and not plan.copies and own.waiting == [child]


@pytest.mark.parametrize("running", [True, False])
def test_a_removed_sequence_leaves_nothing(running):
    own = scheduler()
    (one,) = add(own, sequence(9))
    if running:
        step(own)
    own.remove(one)
    assert own.pool.free == 32 and not own.running and not own.waiting and own.schedule().chunks == []


def test_guesses_leave_half_of_the_step_to_prompts():
    own = Scheduler(PagePool(32), 16, 12, 4, guess=guess_all)
    add(own, sequence(4))
    step(own)
    assert [len(chunk.guessed) for chunk in own.schedule().chunks] == [10]
    add(own, sequence(40, 1, first=10))
    plan = own.schedule()
    assert [(len(chunk.tokens), chunk.logits) for chunk in plan.chunks] == [(6, 6), (6, 0)]


def guess_all(places, budget):
    return {one: tuple(range(min(most, budget))) for one, most in places.items()}


def test_sequences_without_tokens_to_compute_keep_their_pages_until_others_need_them():
    own = scheduler(pages=5)
    first, second, third = add(own, sequence(6), sequence(6, 1, first=10), sequence(6, 2, first=20))
    assert compute(own) == [first, second]  # a step of two pages each, and one for each that runs
    assert first.pages and second.pages and not first.pending
    assert compute(own) == [third] and not second.pages and first.pages
    assert not compute(own)
    for one in (second, first):
        one.tokens.append(7)
        own.go_on(one)
    assert compute(own) == [first] and second in own.waiting
    for one in (first, third, second):
        own.remove(one)
    assert own.pool.free == 5 and not own.parked


def compute(own):
    """A step after which no one gets a token."""
    plan = own.schedule()
    own.commit(plan)
    return plan.sequences
