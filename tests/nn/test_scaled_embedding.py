"""Embeddings that multiply their rows by a constant, as transformers computes them."""

import copy
import importlib
import pickle
import re
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from tilepress import tiles
from tilepress.nn import PackedEmbedding, TiedLinear
from tilepress.nn.row_scale import READ_BY_CODE, is_lookup, scale_of

NUMBER = 5.3  # which bfloat16 cannot hold
WEIGHT = torch.randn(48, 64, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([[3, 47, 0]])
TYPES = [torch.float32, torch.bfloat16, torch.float16]
FAMILIES = ["Gemma3Text", "Gemma3nText", "Bart", "M2M100", "NllbMoe", "XGLM"]
FORWARDS = {
    "return super().forward(input_ids) * self.embed_scale",
    "return super().forward(input_ids) * self.embed_scale.to(self.weight.dtype)",
}
CLASS = re.compile(r"^class (\w+ScaledWordEmbedding)\(nn\.Embedding\):\n((?:    .*\n|\n)+)", re.MULTILINE)


def sources():
    """Name → (module, code) of every such class of the transformers that is installed."""
    found = {}
    for path in sorted(Path(transformers.__path__[0], "models").glob("*/modeling_*.py")):
        module = f"transformers.models.{path.parent.name}.{path.stem}"
        found |= {name: (module, code) for name, code in CLASS.findall(path.read_text("utf-8"))}
    return found


SOURCES = sources()


def plain(family, dtype=torch.float32, device="cpu"):
    """The class of transformers, with weights that int8:row holds exactly."""
    name = f"{family}ScaledWordEmbedding"
    kind = getattr(importlib.import_module(SOURCES[name][0]), name)
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            module = kind(48, 64, 0, embed_scale=NUMBER)
    finally:
        torch.set_default_dtype(torch.float32)
    if device == "cpu":
        module.weight.data = tiles.unpack(tiles.pack(WEIGHT, "int8:row"), dtype)
    return module


def packed(module):
    return PackedEmbedding(tiles.pack(WEIGHT, "int8:row"), module.weight.dtype, 0, scale_of(module))


def test_every_class_of_transformers_that_counts_as_one_computes_as_one():
    """By its source: a new version's class that does more fails here."""
    other = {"T5Gemma2TextScaledWordEmbedding", *READ_BY_CODE}
    assert len(SOURCES) > 20 and other < SOURCES.keys()
    for name in SOURCES.keys() - other:
        (forward,) = re.findall(r"def forward\(self, input_ids: torch\.Tensor\):\n((?: {8}.*\n)+)", SOURCES[name][1])
        assert forward.strip() in FORWARDS, name


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_those_of_transformers_to_the_bit(family, dtype):
    module = plain(family, dtype)
    assert is_lookup(module)
    expected, actual = module(IDS), packed(module)(IDS)
    assert actual.dtype == dtype and torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_module_without_weights_says_the_same(family, dtype):
    streams = {name: array.dtype for name, array in tiles.pack(WEIGHT, "int8:row").streams.items()}
    awaiting = PackedEmbedding.awaiting(plain(family, dtype, "meta"), streams)
    for name, array in packed(plain(family)).state_dict().items():
        setattr(awaiting, name, array.clone())
    awaiting.complete()
    assert torch.equal(awaiting(IDS), plain(family, dtype)(IDS))


@pytest.mark.parametrize("family", FAMILIES)
def test_casts_round_what_they_round_in_transformers(family):
    """Gemma's constant is a buffer, that a cast to bfloat16 rounds for good; the BART family's is a number."""
    module, ours = plain(family), packed(plain(family))
    for dtype in (torch.bfloat16, torch.float32):
        scale = module.to(dtype).embed_scale
        ours.to(dtype)
        assert torch.equal(ours(IDS), nn.functional.embedding(IDS, tiles.unpack(ours.matrix, dtype)) * scale)
    assert (ours.scale.rounded is None) == (family in ("Bart", "M2M100", "NllbMoe", "XGLM"))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("family", ["Gemma3Text", "Bart"])
def test_copies_have_the_constant_and_no_state_has_it(family, again):
    module = packed(plain(family, torch.bfloat16))
    assert torch.equal(again(module)(IDS), module(IDS))
    assert set(module.state_dict()) == {"weight", "codes", "scales"}


@pytest.mark.parametrize("family", ["Gemma3Text", "Bart"])
def test_the_output_layer_takes_the_matrix_without_the_constant(family):
    head = TiedLinear(packed(plain(family)))
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(head(x), x @ plain(family).weight.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["Gemma3Text", "Bart"])
def test_it_compiles_to_one_graph(family):
    torch._dynamo.reset()
    module = packed(plain(family, torch.bfloat16))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(IDS), module(IDS))


@pytest.mark.parametrize("family", ["T5Gemma2Text", "Gemma4Text", "DiffusionGemmaText"])
def test_classes_that_do_more_are_refused(family):
    module = plain(family)
    assert not is_lookup(module)
    with pytest.raises(ValueError, match=f"{family}ScaledWordEmbedding cannot be packed: its weights must stay"):
        scale_of(module)


def test_a_class_that_only_has_the_name_is_refused():
    kind = type("OwnScaledWordEmbedding", (nn.Embedding,), {})
    assert not is_lookup(kind(4, 4)) and is_lookup(nn.Embedding(4, 4))
