"""Row limits measured: where one variant becomes slower than the next."""

import pytest

from tilepress import _native, kernels
from tilepress.bench import tuning
from tilepress.bench.tuning import TuningRun, fit, measure_limits, steps

BATCHES = (1, 2, 4, 8, 16)


def test_a_limit_is_where_the_next_operation_becomes_faster():
    times = {"few": [1.0, 2.0, 4.0, 8.0, 16.0], "more": [3.0, 3.0, 3.0, 6.0, 12.0], "many": [9.0] * 5}
    assert fit(times, BATCHES, {"few": 0, "more": 0}) == {"few": 2, "more": 8}
    assert fit(times, BATCHES, {"few": 16, "more": 1}) == {"few": 2, "more": 8}


def test_an_operation_may_win_always_or_never():
    assert fit({"few": [1.0] * 5, "many": [2.0] * 5}, BATCHES, {"few": 4}) == {"few": 16}
    assert fit({"few": [3.0] * 5, "many": [2.0] * 5}, BATCHES, {"few": 4}) == {"few": 0}


def test_the_built_in_limit_stays_where_little_is_saved():
    times = {"few": [1.0, 1.0, 1.0, 1.0, 1.0], "many": [1.02] * 5}
    assert fit(times, BATCHES, {"few": 5}) == {"few": 5}  # 0.8 % over all batches
    assert fit(times | {"many": [1.2] * 5}, BATCHES, {"few": 5}) == {"few": 16}


def test_an_operation_that_was_given_up_is_not_chosen_beyond():
    times = {"few": [1.0, 2.0], "many": [1.5, 1.0, 1.0, 1.0, 1.0]}
    assert fit(times, BATCHES, {"few": 16}) == {"few": 1}


def test_one_that_is_far_slower_twice_is_given_up():
    times = {"few": [1.0, 4.0], "more": [9.0, 2.0], "many": [9.0, 9.0]}
    assert not tuning._is_lost("few", list(times), times)
    times = {"few": [1.0, 4.0, 8.0], "more": [9.0, 2.0, 2.0], "many": [9.0, 9.0, 9.0]}
    assert tuning._is_lost("few", list(times), times)
    assert not tuning._is_lost("many", list(times), times)


def test_all_classes_of_weights_are_measured(isa):
    run, seen = TuningRun(size=64, batches=(1, 8), repeats=1), []
    limits = measure_limits(1, run, seen.append)
    assert len(seen) == steps(run) == 12
    kinds = ("integer", "zero_point", "lookup", "wide_integer", "fp16", "other")
    assert {weights for _, weights, _, _ in limits} == {f"{d} {kind}" for d in ("dense", "sparse") for kind in kinds}
    known = {limit[:3] for limit in _native.row_limits(isa, True)}
    assert {limit[:3] for limit in limits} <= known and len({limit[:3] for limit in limits}) == len(limits)
    assert all(0 <= limit[3] <= 32 for limit in limits)
    assert ("linear_f32_i8_int", "dense integer", "float32") in {limit[:3] for limit in limits}


@pytest.mark.parametrize("format", tuning.FORMATS)
def test_variants_are_timed_whatever_limits_are_in_force(format, monkeypatch):
    ran = []
    monkeypatch.setattr(kernels, "linear", lambda x, packed, activations, variant: ran.append((x.shape[0], variant)))
    measure_limits(1, TuningRun(size=32, batches=(1,), repeats=1, formats=[format]))
    assert len({variant for _, variant in ran}) >= 2 and {batch for batch, _ in ran} == {1}
