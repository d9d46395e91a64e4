"""The two streams of hidden states."""

import pytest
import torch

from tests.models import tiny
from tests.models.test_calibration import make
from tests.models.test_compress_to_folder import Stop, contents, stop_after
from tilepress.models import compress_folder, compress_model
from tilepress.models.blocks import REST, find_blocks, linear_layers
from tilepress.models.disk_storage import DiskStorage
from tilepress.models.hidden_states import HiddenStates
from tilepress.models.layer_inputs import paired_inputs
from tilepress.models.recipe import Recipe
from tilepress.models.storage import MemoryStorage

RECIPE = {"weights": {"format": "int4:g32", "embedding": "keep", "density": 0.5, "prune": "wanda"}}


@pytest.fixture
def dense_stream(monkeypatch):
    """Recipes ask for the dense stream."""
    monkeypatch.setattr(Recipe, "needs_dense_stream", True)


def last_outputs(model, tokens):
    """What the last block gives for each window, when the whole model runs."""
    outputs = []
    block = list(find_blocks(model).values())[-1]
    handle = block.register_forward_hook(lambda _, __, y: outputs.append(y[0] if isinstance(y, tuple) else y))
    with torch.no_grad():
        for window in tokens:
            model(window[None])
    handle.remove()
    return torch.stack(outputs)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma4, shared keys"])
def test_the_dense_stream_is_what_the_model_gave(family, dense_stream, monkeypatch):
    tokens, kept = tiny.windows(3), {}
    monkeypatch.setattr(MemoryStorage, "finish", lambda self, *_: kept.update(self._hidden))
    expected = last_outputs(make(family), tokens)
    model = compress_model(make(family), RECIPE, windows=tokens)
    torch.testing.assert_close(kept[REST, "dense"], expected)
    if family != "gemma4, shared keys":  # which has layers before the blocks that are packed last
        torch.testing.assert_close(kept[REST, "compressed"], last_outputs(model, tokens), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(kept[REST, "compressed"], expected, rtol=0.01)


def test_without_a_method_that_asks_there_is_one_stream(monkeypatch):
    kept = {}
    monkeypatch.setattr(MemoryStorage, "finish", lambda self, *_: kept.update(self._hidden))
    compress_model(tiny.make("llama"), RECIPE, windows=tiny.windows())
    assert {stream for _, stream in kept} == {"compressed"}


@pytest.mark.parametrize("stages", [1, 2])
def test_the_dense_stream_is_resumed(llama_folder, tmp_path, recipe, dense_stream, monkeypatch, stages):
    seen, finish = {}, DiskStorage.finish

    def spy(self, stage, layers):
        for (place, stream), hidden in self._hidden.items():
            seen[place, stream] = hidden.clone()
        finish(self, stage, layers)

    monkeypatch.setattr(DiskStorage, "finish", spy)
    compress_folder(str(llama_folder[0]), tmp_path / "whole", recipe)
    whole = dict(seen)
    seen.clear()
    with pytest.raises(Stop):
        compress_folder(str(llama_folder[0]), tmp_path / "out", recipe, progress=stop_after(stages))
    names = {path.name.partition(".")[0] for path in (tmp_path / "out.partial/hidden").iterdir()}
    assert names == {f"{stages + 1}-compressed", f"{stages + 1}-dense"}
    compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert whole.keys() == seen.keys() and all(torch.equal(whole[key], seen[key]) for key in whole)


def test_pairs_of_inputs_are_what_layers_are_given_in_each_stream():
    model, tokens = tiny.make("llama"), tiny.windows(2)
    blocks = find_blocks(model)
    with torch.no_grad():
        hidden = HiddenStates(model, blocks, tokens, MemoryStorage(), dense=True)
        name = next(iter(blocks))
        hidden._hidden(name, "compressed").mul_(1.5)
        hidden._hidden(name, "dense")[1].zero_()
        layers = linear_layers(blocks[name], name)
        pairs = zip(hidden.runs(name), hidden.runs(name, "dense"), strict=True)
        given = list(paired_inputs(layers, pairs, each=hidden.chain.each))
    assert len(given) == 2 and [layer for layer, _, _ in given[0]] == list(layers)
    first, second = given[0][0], given[1][0]
    assert not torch.allclose(first[1], first[2], rtol=1e-6, atol=0) and first[1].shape == first[2].shape
    torch.testing.assert_close(first[1], first[2], rtol=1e-2, atol=1e-3)  # the norm before it undoes the factor
    assert not second[2].any() and second[1].any()
    assert not any(layer._forward_pre_hooks for layer in layers.values())
