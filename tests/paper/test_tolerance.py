"""One policy of what counts as a match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilepress.paper.tolerance import QUANTITIES, as_text, last_digit, matches, quantity_of

PERCENT = st.floats(1, 99).map(lambda value: round(value, 6))


@pytest.mark.parametrize(
    "ours, theirs, quantity, near",
    [
        (1.10, 1.0001, "ratio", True),
        (1.1003, 1.0001, "ratio", False),
        (2.0, 2.19, "ratio", True),
        (1.98, 2.19, "ratio", False),
        (0.0, 3.001, "ratio", False),
        (22.9, 18.0, "share", True),
        (23.1, 18.0, "share", False),
        (45.3, 54, "saving", False),
        (50.0, 54, "saving", True),
        (0.24, 0.14, "quality", True),
        (0.25, 0.14, "quality", False),
        (2.8657, 2.86, "exact", True),
        (2.8757, 2.86, "exact", False),
        (1.4, 1, "ratio", True),
        (1.6, 1, "ratio", False),
        (0.4, 0, "ratio", True),
        (0.6, 0, "ratio", False),
        (100.0, 100.0, "saving", True),
        ("memory", "memory", "ratio", True),
        ("memory", "vector", "ratio", False),
        (1.0, "memory", "ratio", False),
    ],
)
def test_what_matches(ours, theirs, quantity, near):
    assert matches(ours, theirs, quantity) == near


@given(PERCENT, PERCENT)
def test_a_saving_and_its_reciprocal_are_one_statement(ours, theirs):
    times_less = [100 / (100 - saved) for saved in (ours, theirs)]
    if abs(times_less[0] - times_less[1]) < 1e-5 or abs(ours - theirs) < 1e-5:
        return
    # Not where the two differ by the tolerance itself, which rounding decides.
    if abs(max(times_less) / min(times_less) - 1.1) > 1e-9:
        assert matches(ours, theirs, "saving") == matches(*times_less, "ratio")


@given(st.floats(0.001, 1000), st.floats(0.001, 1000))
def test_above_and_below_are_alike(ours, theirs):
    if abs(ours - theirs) > 0.01:
        assert matches(ours, theirs, "ratio") in (matches(theirs, ours, "ratio"), True)


def test_digits():
    assert [last_digit(value) for value in (12, 2.86, 0.1, 90.0)] == [1.0, 0.01, 0.1, 0.1]


def test_units_have_a_quantity_and_quantities_a_text():
    assert (quantity_of("%"), quantity_of("ms"), quantity_of("")) == ("share", "ratio", "ratio")
    assert as_text("ratio") == "within 10 %, above or below by the same factor"
    assert all(as_text(quantity) for quantity in QUANTITIES)
