"""Predictions by the engine are those of the model's own modules."""

import copy

import pytest
import torch

from tests.evaluate.tiny import tiny_model
from tests.models import tiny
from tilepress.evaluate import EngineModel, Windowing, engine_model, in_engine, perplexity
from tilepress.evaluate.scoring import predictions
from tilepress.models import compress_folder, load_model
from tilepress.nn.kv_emulation import emulate_kv
from tilepress.nn.model_kv_cache import set_default_cache

ROWS = torch.randint(64, (3, 41), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Weights in 8 bits, activations as they are, in float32."""
    folder, _ = tiny.save(tmp_path_factory.mktemp("engine_model") / "model", head_dim=32)
    compress_folder(str(folder), folder.parent / "out", {"weights": {"format": "int8:row"}})
    return load_model(str(folder.parent / "out"), dtype=torch.float32).model


@pytest.fixture
def model(packed):
    return copy.deepcopy(packed)


@pytest.mark.parametrize("step", [1, 16, 512])
@pytest.mark.parametrize("scored", [1, 7, 40])
def test_last_tokens_of_rows(model, monkeypatch, step, scored):
    monkeypatch.setattr(engine_model, "STEP_TOKENS", step)
    engine = in_engine(model)
    assert isinstance(engine, EngineModel)
    torch.testing.assert_close(
        predictions(engine, ROWS, scored), predictions(model, ROWS, scored), rtol=1e-3, atol=1e-3
    )
    alone = [predictions(one, ROWS[:1, :9], 1) for one in (engine, model)]
    torch.testing.assert_close(*alone, rtol=1e-3, atol=1e-3)


def test_padding_comes_last(model):
    mask = torch.ones_like(ROWS)
    mask[1, 30:] = 0
    ours, theirs = (predictions(one, ROWS, 40, mask) for one in (in_engine(model), model))
    torch.testing.assert_close(ours[1, :29], theirs[1, :29], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("kv", ["bfp8", "bfp4", "sparse:k30,v50"])
def test_caches(model, kv, remembered):
    if remembered:
        set_default_cache(model, kv)
    engine = in_engine(model) if remembered else in_engine(model, kv)
    emulate_kv(model, kv)
    windowing = Windowing(window=41, batch=2)
    ours, theirs = (perplexity(one, ROWS.flatten(), windowing) for one in (engine, model))
    assert isinstance(engine, EngineModel)
    assert ours.perplexity.value == pytest.approx(theirs.perplexity.value, rel=1e-4)
    assert ours.tokens == theirs.tokens


def test_where_the_engine_cannot(model):
    for other in (tiny_model("llama"), tiny_model("gpt-neox")):  # not packed, and unknown
        assert in_engine(other) is other
    assert in_engine(model, "fp16") is model
    emulate_kv(model, "bfp4")
    assert in_engine(model) is model
    emulate_kv(model, "none")
    assert in_engine(model) is not model
    model.model.layers[0].register_forward_hook(lambda *_: None)
    assert in_engine(model) is model
