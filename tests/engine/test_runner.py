"""What every runner must do: its pages, and what it refuses."""

import pytest
import torch
from tests.engine.families import LENGTH, VOCABULARY, logits, make, tokens
from tests.engine.runners import PAGE_TOKENS, PAGES, RUNNERS, all_pages, chunk, held_by
from tests.engine.test_reference import BOUND, error

from tilepress.engine.batch import Chunk


@pytest.fixture(scope="module")
def llama():
    return make("llama")


@pytest.fixture(params=RUNNERS)
def kind(request):
    return RUNNERS[request.param]


@pytest.fixture
def runner(llama, kind):
    return kind(llama, PAGE_TOKENS, PAGES, longest=LENGTH)


def test_what_it_says_of_itself(llama, kind, runner):
    assert (runner.page_tokens, runner.pages, runner.vocabulary) == (PAGE_TOKENS, PAGES, VOCABULARY)
    layers, heads, head_dim = 4, 2, 32
    assert runner.page_bytes == layers * 2 * PAGE_TOKENS * heads * head_dim * 4
    assert kind(llama).longest == llama.config.max_position_embeddings
    assert (kind(llama).page_tokens, runner.longest) == (32, LENGTH)


def test_a_fork_writes_to_its_copy_of_the_last_page(llama, runner):
    text, other = tokens(), tokens(seed=2)
    first = (5, 3, 9)
    runner.run([chunk(text, 0, 20, first)])
    runner.copy_page(3, 20)
    fork, forked = (5, 20, 21), text[:20] + other[20:]
    actual = runner.run([chunk(forked, 20, LENGTH, fork), chunk(text, 20, LENGTH, first)])
    assert error(actual[0], logits(llama, forked)[-1]) <= BOUND
    assert error(actual[1], logits(llama, text)[-1]) <= BOUND


def test_a_copy_of_a_page_is_of_all_layers(runner):
    runner.run([chunk(tokens(), 0, LENGTH, (5, 3, 9))])
    runner.copy_page(3, 20)
    for layer in range(4):
        held = held_by(runner, layer, 3)
        assert held.std() > 0 and torch.equal(held, held_by(runner, layer, 20))


def test_a_page_is_read_from_where_the_chunk_says(llama, runner):
    """Pages of another text give other logits: nothing is remembered beside them."""
    text = tokens()
    runner.run([chunk(text, 0, 32, (0, 1), False), chunk(tokens(seed=2), 0, 32, (2, 3), False)])
    right, wrong = runner.run([Chunk(text[32:36], 32, (0, 1, 4), True), Chunk(text[32:36], 32, (0, 3, 5), True)])
    assert error(right, logits(llama, text[:36])[-1]) <= BOUND
    assert error(wrong, right) > 100 * BOUND


def test_steps_without_logits(runner):
    assert runner.run([]).shape == (0, VOCABULARY)
    assert runner.run([chunk(tokens(), 0, 5, (0,), False)]).shape == (0, VOCABULARY)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (Chunk((), 0, (0,), True), "a chunk has tokens, and starts at 0 or later"),
        (Chunk((5,), -1, (0,), True), "a chunk has tokens, and starts at 0 or later"),
        (Chunk((5,), LENGTH, tuple(range(6)), True), f"a sequence has at most {LENGTH} tokens, not {LENGTH + 1}"),
        (Chunk((5, 6), 15, (0,), True), "17 tokens do not fit in 1 pages of 16"),
        (Chunk((5,), 0, (PAGES,), True), rf"pages are 0 … {PAGES - 1}, not \({PAGES},\)"),
        (Chunk((5,), 0, (-1,), True), r"pages are 0 … 23, not \(-1,\)"),
        (Chunk((5,), 16, (3, 3), True), r"the pages of a sequence differ from each other, not \(3, 3\)"),
        (Chunk((5,), 4, (7,), True), "two chunks have new tokens in the same place of page 7"),
        (Chunk((5, VOCABULARY), 0, (0,), True), rf"tokens are 0 … {VOCABULARY - 1}, not \(5, {VOCABULARY}\)"),
        (Chunk((5, -1), 0, (0,), True), rf"tokens are 0 … {VOCABULARY - 1}, not \(5, -1\)"),
    ],
)
def test_what_it_refuses(runner, wrong, message):
    runner.run([chunk(tokens(), 0, LENGTH, pages) for pages in [(0, 1, 2), (3, 4, 5), (7, 8, 9)]])
    before = all_pages(runner)
    with pytest.raises(ValueError, match=message):
        runner.run([chunk(tokens(seed=3), 0, 5, (7,)), wrong])
    for layer, held in enumerate(before):
        for page in (0, 1, 3, 4, 7, 8):  # those that are full
            assert torch.equal(held[page], held_by(runner, layer, page))


@pytest.mark.parametrize("pages", [(0, PAGES), (-1, 0)])
def test_copies_of_pages_that_are_not_there(runner, pages):
    with pytest.raises(ValueError, match=f"pages are 0 … {PAGES - 1}, not"):
        runner.copy_page(*pages)


def test_a_model_that_is_not_what_its_config_says(kind):
    model = make("llama")
    del model.model.layers[1].mlp.gate_proj
    with pytest.raises(ValueError, match=r"LlamaMLP has no gate_proj, which its description says it has"):
        kind(model)
