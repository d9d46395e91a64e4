"""Where heads attend, and outliers of keys: Harmonia's figures 7, 9 and 10 on a tiny model."""

import pytest

from tests.paper.reproducing import SIZES, reproduced, values

LEARNED = {"sequences": 1, "length": 40, "steps": 2}


def test_attention_to_first_and_last_tokens(model):
    options = {name: model[name] for name in ("model", "text")}
    cells = reproduced("harmonia/fig7", **options, sentences=20, length=16, few=2)
    for row in ("initial tokens", "local tokens"):
        ratio = cells[row, "attention over that of tokens between"]
        assert ratio.paper == "> 1" and ratio.value > 0 and ratio.state in ("matches", "deviates")
        assert cells[row, "attention over an even share"].paper is None
        assert 0 <= cells[row, "heads with more than half of it there"].value <= 100


def test_keys_and_values(model):
    cells = reproduced("harmonia/fig9", **model, **SIZES)
    column = "largest channel over median"
    keys, of_values = (cells[f"{model['model']}, {one}", column].value for one in ("keys", "values"))
    assert cells["keys over values", column].value == pytest.approx(keys / of_values)
    assert cells["keys over values", column].paper == "> 1" and min(keys, of_values) >= 1
    for one in ("keys", "values"):
        share, zeros = values(cells, f"{model['model']}, {one}", ["variance between channels", "become zero"])
        assert 0 <= share <= 100 and 0 < zeros < 100


def test_smoothed_keys(model):
    cells = reproduced("harmonia/fig10", **model, **SIZES, **LEARNED)
    column = "largest channel over median"
    none, offline, hybrid = (cells[f"{model['model']}, {one}", column].value for one in ("none", "offline", "hybrid"))
    assert cells["offline over none", column].value == pytest.approx(offline / none)
    assert cells["hybrid over offline", column].value == pytest.approx(hybrid / offline) and hybrid != offline
    assert cells["offline over none", "median channel"].paper == "> 1"
