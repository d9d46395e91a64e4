"""The reference model as a runner: its pages, what it refuses, and models with packed layers."""

import pytest
import torch
from tests.engine.families import LENGTH, VOCABULARY, logits, make, tokens
from tests.engine.test_reference import BOUND, PAGE_TOKENS, PAGES, chunk, error, pages_of, runner

from tilepress.engine.batch import Chunk
from tilepress.engine.reference import ReferenceModel
from tilepress.models import compress_model
from tilepress.nn import PackedEmbedding, PackedExperts, PackedLinear

PACKED = 1e-3  # of the largest logit, for packed layers


@pytest.fixture(scope="module")
def llama():
    return make("llama")


def test_what_it_says_of_itself(llama):
    reference = runner(llama)
    assert (reference.page_tokens, reference.pages, reference.vocabulary) == (PAGE_TOKENS, PAGES, VOCABULARY)
    layers, heads, head_dim = 4, 2, 32
    assert reference.page_bytes == layers * 2 * PAGE_TOKENS * heads * head_dim * 4
    assert ReferenceModel(llama).longest == llama.config.max_position_embeddings
    assert (ReferenceModel(llama).page_tokens, runner(llama).longest) == (32, LENGTH)


def test_a_fork_writes_to_its_copy_of_the_last_page(llama):
    text, other = tokens(), tokens(seed=2)
    reference, first = runner(llama), (5, 3, 9, 1, 0, 2)
    reference.run([chunk(text, 0, 20, first)])
    reference.copy_page(9, 20)
    fork, forked = (5, 3, 20, 21, 22, 23), text[:20] + other[20:]
    actual = reference.run([chunk(forked, 20, LENGTH, fork), chunk(text, 20, LENGTH, first)])
    assert error(actual[0], logits(llama, forked)[-1]) <= BOUND
    assert error(actual[1], logits(llama, text)[-1]) <= BOUND


def test_a_page_is_read_from_where_the_chunk_says(llama):
    """Pages of another text give other logits: nothing is remembered beside them."""
    reference, text = runner(llama), tokens()
    reference.run([chunk(text, 0, 16, (0, 1), False), chunk(tokens(seed=2), 0, 16, (2, 3), False)])
    right, wrong = reference.run([Chunk(text[16:20], 16, (0, 1, 4), True), Chunk(text[16:20], 16, (0, 3, 5), True)])
    assert error(right, logits(llama, text[:20])[-1]) <= BOUND
    assert error(wrong, right) > 100 * BOUND


def test_pages_that_never_were_written_have_no_say(llama):
    reference = runner(llama)
    for pages in reference.key_values:
        pages.fill_(float("nan"))
    assert error(reference.run([chunk(tokens(), 0, LENGTH, pages_of(0))])[0], logits(llama, tokens())[-1]) <= BOUND


def test_steps_without_logits(llama):
    assert runner(llama).run([]).shape == (0, VOCABULARY)
    assert runner(llama).run([chunk(tokens(), 0, 5, (0,), False)]).shape == (0, VOCABULARY)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (Chunk((), 0, (0,), True), "a chunk has tokens, and starts at 0 or later"),
        (Chunk((5,), -1, (0,), True), "a chunk has tokens, and starts at 0 or later"),
        (Chunk((5,), LENGTH, tuple(range(6)), True), f"a sequence has at most {LENGTH} tokens, not {LENGTH + 1}"),
        (Chunk((5, 6), 7, (0,), True), "9 tokens do not fit in 1 pages of 8"),
        (Chunk((5,), 0, (PAGES,), True), rf"pages are 0 … {PAGES - 1}, not \({PAGES},\)"),
        (Chunk((5,), 0, (-1,), True), r"pages are 0 … 23, not \(-1,\)"),
        (Chunk((5,), 8, (3, 3), True), r"the pages of a sequence differ from each other, not \(3, 3\)"),
        (Chunk((5,), 4, (7,), True), "two chunks have new tokens in the same place of page 7"),
        (Chunk((5, VOCABULARY), 0, (0,), True), rf"tokens are 0 … {VOCABULARY - 1}, not \(5, {VOCABULARY}\)"),
    ],
)
def test_what_it_refuses(llama, wrong, message):
    reference = runner(llama)
    before = [pages.zero_().clone() for pages in reference.key_values]
    with pytest.raises(ValueError, match=message):
        reference.run([chunk(tokens(), 0, 5, (7,)), wrong])
    assert all(map(torch.equal, before, reference.key_values))


@pytest.mark.parametrize("pages", [(0, PAGES), (-1, 0)])
def test_copies_of_pages_that_are_not_there(llama, pages):
    with pytest.raises(ValueError, match=f"pages are 0 … {PAGES - 1}, not"):
        runner(llama).copy_page(*pages)


def test_a_model_that_is_not_what_its_config_says():
    model = make("llama")
    del model.model.layers[1].mlp.gate_proj
    with pytest.raises(ValueError, match=r"LlamaMLP has no gate_proj, which its description says it has"):
        runner(model)


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
