"""Losses by window: those of a packed model's formats, on the same windows."""

import math
from statistics import mean

import pytest

from tilepress.evaluate import Windowing, perplexity
from tilepress.paper.studies.kv_cache import Sizes, load_kv_study
from tilepress.paper.studies.window_losses import Formats, window_losses

SIZES = Sizes(windows=3, tokens=60, sequences=1, length=40, steps=2)


@pytest.fixture
def study(model):
    return load_kv_study(model["model"], "", model["text"], "cpu", SIZES)


def losses(study, *formats):
    return window_losses(study, Formats(*formats), lambda sequence, _: iter(sequence))


def test_plain_losses_are_those_of_the_perplexity(study):
    whole = perplexity(study.subject.model, study.tokens, Windowing(window=60, limit=3))
    plain = losses(study)
    assert len(plain) == 3 and mean(plain) == pytest.approx(whole.loss.value, rel=1e-6)


def test_formats_round_and_leave_the_model_as_it_was(study):
    plain = losses(study)
    rounded = [losses(study, *one) for one in (("int8",), ("bfp:g32:m3",), ("bfp:g32:m8", "bfp:m2"))]
    assert all(one != plain for one in rounded) and losses(study) == plain
    few_bits, few_bits_of_keys = rounded[1:]
    assert few_bits != few_bits_of_keys and all(math.isfinite(one) for values in rounded for one in values)


def test_smoothing_is_folded_into_a_copy(study):
    plain, none = losses(study), losses(study, "bfp:g32:m8", "bfp:m2")
    smoothed = {one: losses(study, "bfp:g32:m8", "bfp:m2", one) for one in ("offline", "online", "hybrid")}
    assert none not in smoothed.values() and len({tuple(one) for one in smoothed.values()}) == 3
    assert losses(study) == plain


def test_one_format_for_all_layers(study):
    with pytest.raises(ValueError, match="all layers have one format here"):
        losses(study, "anda:7,7,6,5")
