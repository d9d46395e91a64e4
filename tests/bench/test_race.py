"""What races have in common."""

from tilepress.bench.race import is_enough


def test_as_many_calls_as_time_and_repeats_allow():
    assert not is_enough([0.1] * 9, 50, 1.0) and is_enough([0.02] * 50, 50, 1.0)
    assert not is_enough([1.0] * 4, 50, 1.0) and is_enough([1.0] * 5, 50, 1.0)
    assert not is_enough([20.0] * 2, 50, 1.0) and is_enough([20.0] * 3, 50, 1.0)
    assert is_enough([0.0], 1, 1.0)
