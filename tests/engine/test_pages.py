"""Pages: who uses them, and what is found again."""

import pytest

from tilepress.engine.pages import PagePool

A, B, C = (1, 2), (3, 4), (5, 6)


def test_pages_are_taken_once():
    pool = PagePool(3)
    assert sorted(pool.take() for _ in range(3)) == [0, 1, 2] and pool.free == 0
    with pytest.raises(IndexError, match="no page is free"):
        pool.take()
    pool.release([1])
    assert pool.free == 1 and pool.take() == 1


def test_a_shared_page_is_free_when_its_last_user_is_gone():
    pool = PagePool(1)
    page = pool.take()
    pool.share(page)
    pool.release([page])
    assert pool.free == 0
    pool.release([page])
    assert pool.free == 1


def test_a_page_is_found_by_all_tokens_from_the_first():
    pool = PagePool(4)
    first, second = pool.take(), pool.take()
    assert pool.publish(None, A, first) == first and pool.publish(first, B, second) == second
    assert pool.lookup(None, A) == first and pool.lookup(first, B) == second
    assert pool.lookup(None, B) is None and pool.lookup(first, A) is None and pool.lookup(second, B) is None


def test_tokens_with_the_same_hash_are_not_the_same():
    one, other = (-1, 0), (-2, 0)  # Python's hashes of -1 and -2 are equal
    assert hash(one) == hash(other)
    pool = PagePool(2)
    pool.publish(None, one, pool.take())
    assert pool.lookup(None, other) is None


def test_a_page_that_is_known_already_is_given_back():
    pool = PagePool(3)
    first, again = pool.take(), pool.take()
    pool.publish(None, A, first)
    assert pool.publish(None, A, again) == first
    assert pool.users[first] == 2 and pool.users[again] == 0 and pool.free == 2


def test_unused_pages_are_found_until_they_are_needed_the_longest_unused_first():
    pool = PagePool(3)
    pages = [pool.take() for _ in range(3)]
    pool.publish(None, A, pages[0])
    pool.publish(pages[0], B, pages[1])
    pool.publish(None, C, pages[2])
    pool.release(pages[:2])
    pool.release(pages[2:])
    assert pool.free == 3 and pool.lookup(None, A) == pages[0]
    assert pool.take() == pages[1] and pool.lookup(pages[0], B) is None and pool.lookup(None, A) == pages[0]
    pool.share(pages[0])
    assert pool.take() == pages[2] and pool.free == 0 and pool.lookup(None, C) is None


def test_a_page_after_one_that_was_evicted_is_not_found_under_its_successor():
    """The same number of a page, with other tokens, is another page before."""
    pool = PagePool(2)
    first, second = pool.take(), pool.take()
    pool.publish(None, A, first)
    pool.publish(first, B, second)
    pool.release([first])  # not what a sequence does, which has all pages before its last
    assert pool.take() == first
    pool.publish(None, C, first)
    assert pool.lookup(first, B) is None


def test_forgotten_pages_are_not_found_nor_what_follows_them():
    pool = PagePool(3)
    first, second, third = (pool.take() for _ in range(3))
    pool.publish(None, A, first)
    pool.forget([first, third])
    assert pool.lookup(None, A) is None and pool.lookup(first, B) is None
    assert pool.publish(first, B, second) == second and pool.lookup(first, B) is None
    pool.release([first, second])
    assert pool.free == 2


def test_what_users_together_would_free():
    pool = PagePool(3)
    shared, own = pool.take(), pool.take()
    pool.share(shared)
    assert pool.freed_by([shared, own]) == 1 and pool.freed_by([shared, own, shared]) == 2 and pool.freed_by([]) == 0


def test_a_page_anew_takes_the_place_of_one_that_is_known():
    """What follows is found after either; the old one is free when its users are gone."""
    released = []
    pool = PagePool(5, released.append)
    old, after, new = pool.take(), pool.take(), pool.take()
    pool.publish(None, A, old)
    pool.publish(old, B, after)
    assert pool.publish(None, A, new, anew=True) == new
    assert pool.lookup(None, A) == new and pool.lookup(new, B) == pool.lookup(old, B) == after
    assert not pool.is_published(old) and not pool.is_empty(old)
    pool.release([old])
    assert pool.is_empty(old) and released == [old] and pool.lookup(old, B) is None
    pool.release([new])
    again = pool.take()
    assert pool.publish(None, A, again, anew=True) == again
    assert released == [old, new] and pool.is_empty(new)


def test_others_are_published_after_a_copy():
    pool = PagePool(4)
    first, second = pool.take(), pool.take()
    pool.publish(None, A, first)
    copy = pool.take(like=first)
    assert not pool.is_published(copy) and pool.publish(copy, B, second) == second
    pool.release([copy])
    assert pool.lookup(first, B) == second and pool.lookup(copy, B) is None
