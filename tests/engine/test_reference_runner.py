"""The reference model beside what test_runner.py has of every runner: models with packed layers, and in bfloat16."""

import pytest
import torch
from tests.engine.families import LENGTH, VOCABULARY, logits, make, tokens
from tests.engine.test_reference import BOUND, chunk, error, pages_of, runner

from tilepress.models import compress_model
from tilepress.nn import PackedEmbedding, PackedExperts, PackedLinear

PACKED = 1e-3  # of the largest logit, for packed layers


@pytest.fixture(scope="module")
def llama():
    return make("llama")


def test_pages_that_never_were_written_have_no_say(llama):
    reference = runner(llama)
    for pages in reference.key_values:
        pages.fill_(float("nan"))
    assert error(reference.run([chunk(tokens(), 0, LENGTH, pages_of(0))])[0], logits(llama, tokens())[-1]) <= BOUND


@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3", "gpt_oss", "qwen3_moe"])
def test_packed_layers(family):
    """Linear layers, experts, and the embedding with its scale. A matrix unit rounds activations to bfloat16, some the
    other way than in transformers."""
    model = compress_model(
        make(family, tie_word_embeddings=True), {"weights": {"format": "int8:row", "lm_head": "compress"}}
    )
    kinds = {type(module) for module in model.modules()}
    assert PackedLinear in kinds and PackedEmbedding in kinds
    assert (PackedExperts in kinds) == (family in ("gpt_oss", "qwen3_moe"))
    text = tokens()
    with torch.no_grad():
        expected = logits(model, text)
    reference = runner(model)
    assert reference.run([chunk(text, 0, 5, pages_of(0), False)]).shape == (0, VOCABULARY)
    for start, end in [(5, 30), (30, 31), (31, LENGTH)]:
        assert error(reference.run([chunk(text, start, end, pages_of(0))])[0], expected[end - 1]) <= PACKED


@pytest.mark.parametrize("family", ["llama", "gemma3", "mixtral", "granite"])
def test_models_in_bfloat16(family):
    """Both round, at other places: the reference is as near to the model in float32 as transformers is."""
    text, exact = tokens(), logits(make(family), tokens())[-1]
    model = make(family).bfloat16()
    theirs = error(logits(model, text)[-1].float(), exact)
    ours = error(runner(model).run([chunk(text, 0, LENGTH, pages_of(0))])[0], exact)
    assert 0 < ours <= 1.5 * theirs
