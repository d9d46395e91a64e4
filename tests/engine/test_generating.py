"""`model.generate` of packed models in the engine: what transformers gives, and transformers itself for the rest."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.engine import families
from tests.models import tiny
from torch import nn
from transformers import TextStreamer

from tilepress.engine import Engine
from tilepress.models import compress_folder, compress_model, load_model
from tilepress.nn.model_kv_cache import set_default_cache

PADDED = torch.tensor([[0, 0, 5, 6, 7], [8, 9, 10, 11, 12], [0, 4, 13, 6, 3]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])
BATCH = {"inputs": PADDED, "attention_mask": MASK, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder, _ = tiny.save(tmp_path_factory.mktemp("generating") / "model")
    compress_folder(str(folder), folder.parent / "out", {"activations": {"format": "int8"}})
    return load_model(str(folder.parent / "out"))


@pytest.fixture
def model(loaded):
    return copy.deepcopy(loaded.model)


@pytest.fixture
def served(monkeypatch):
    """Requests that engines got."""
    submit, seen = Engine.submit, []
    monkeypatch.setattr(Engine, "submit", lambda self, *given: seen.append(given) or submit(self, *given))
    return seen


def both(model, **options):
    return model.generate(**options), type(model).generate(model, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 9},
        {"max_length": 12},
        {"max_new_tokens": 1},
        {"max_new_tokens": 30, "eos_token_id": list(range(20, 60))},
        {"max_new_tokens": 30, "eos_token_id": 7},
        {"max_new_tokens": 9, "num_beams": 1, "use_cache": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("kv", [None, "sparse:k30,v50"])
def test_greedy_batches(model, served, kv, options):
    if kv:
        set_default_cache(model, kv)
    mine, theirs = both(model, **BATCH, **options)
    assert torch.equal(mine, theirs) and len(served) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "max_new_tokens": 9},
        {"num_beams": 4, "num_return_sequences": 2, "max_new_tokens": 15, "eos_token_id": list(range(20, 40))},
        {"num_beams": 2, "num_return_sequences": 2, "max_length": 14, "eos_token_id": 7, "pad_token_id": 3},
        {"num_beams": 3, "max_new_tokens": 15, "eos_token_id": list(range(20, 40)), "length_penalty": -1.0},
        {"num_beams": 3, "max_new_tokens": 15, "eos_token_id": list(range(20, 40)), "early_stopping": True},
        {"num_beams": 3, "max_new_tokens": 9, "inputs": PADDED[1:2], "attention_mask": MASK[1:2]},
    ],
    ids=str,
)
@pytest.mark.parametrize("kv", [None, "sparse:k30,v50"])
def test_beams(model, served, kv, options):
    if kv:
        set_default_cache(model, kv)
    mine, theirs = both(model, **{**BATCH, **options})
    assert torch.equal(mine, theirs) and len(served) == len(options.get("inputs", PADDED))


def test_a_batch_without_padding(model, served):
    mine, theirs = both(model, inputs=PADDED[1:2].repeat(4, 1), max_new_tokens=6, do_sample=False, eos_token_id=[])
    assert torch.equal(mine, theirs) and len(served) == 4


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_models_with_experts(served, family):
    model = compress_model(families.make(family), {"activations": {"format": "int8"}})
    mine, theirs = both(model, **BATCH, max_new_tokens=9)
    assert torch.equal(mine, theirs) and len(served) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True},
        {"do_sample": True, "num_beams": 3},
        {"num_beams": 3, "repetition_penalty": 1.5},
        {"num_beams": 3, "eos_token_id": None},
        {"repetition_penalty": 1.5},
        {"min_new_tokens": 3},
        {"return_dict_in_generate": True},
        {"num_return_sequences": 2, "num_beams": 2, "output_scores": True, "return_dict_in_generate": True},
        {"use_cache": False},
        {"attention_mask": MASK.flip(1)},
        {"inputs": PADDED[:1], "attention_mask": MASK[:1]},
        {"max_new_tokens": 100},
    ],
    ids=str,
)
def test_what_transformers_does(model, served, options):
    torch.manual_seed(0)
    given = {**BATCH, "max_new_tokens": 5, **options}
    mine = model.generate(**given)
    torch.manual_seed(0)
    theirs = type(model).generate(model, **given)
    assert torch.equal(getattr(mine, "sequences", mine), getattr(theirs, "sequences", theirs)) and not served


def test_one_who_watches_sees_all(model, loaded, served):
    seen = []
    model.model.layers[0].register_forward_hook(lambda *_: seen.append(1))
    model.generate(**BATCH, max_new_tokens=3)
    assert seen and not served
    with pytest.raises(ValueError, match="TextStreamer only supports batch size 1"):
        loaded.model.generate(**BATCH, max_new_tokens=3, streamer=TextStreamer(loaded.tokenizer))


class Louder(nn.Module):
    """In place of a layer, as adapters are."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return 2 * self.layer(x)


def test_layers_in_place_of_others_count(model, served):
    model.generate(**BATCH, max_new_tokens=4)
    block = model.model.layers[1].mlp
    block.down_proj = Louder(block.down_proj)
    mine, theirs = both(model, **BATCH, max_new_tokens=9)
    assert torch.equal(mine, theirs) and len(served) == 3
    block.down_proj = block.down_proj.layer
    block.forward = lambda x: torch.zeros_like(x)
    mine, theirs = both(model, **BATCH, max_new_tokens=9)
    assert torch.equal(mine, theirs) and len(served) == 3


def test_weights_that_have_changed_count(model, served):
    model.generate(**BATCH, max_new_tokens=4)
    with torch.no_grad():
        model.model.norm.weight.mul_(torch.linspace(-1, 1, len(model.model.norm.weight)))
    mine, theirs = both(model, **BATCH, max_new_tokens=9)
    assert torch.equal(mine, theirs) and len(served) == 6


def test_copies_have_their_own(model, served):
    twins = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    expected = model.generate(**BATCH, max_new_tokens=6)
    for twin in twins:
        assert torch.equal(twin.generate(**BATCH, max_new_tokens=6), expected)
        assert twin.generate.model is twin
    assert len(served) == 9


def test_threads_share_a_model(model):
    expected = model.generate(**BATCH, max_new_tokens=20)
    with ThreadPoolExecutor(4) as threads:
        for mine in threads.map(lambda _: model.generate(**BATCH, max_new_tokens=20), range(8)):
            assert torch.equal(mine, expected)
