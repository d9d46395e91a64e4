"""The native step against the reference model: every family, ragged batches, pages, packed layers."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from tests.engine.families import FAMILIES, LENGTH, VOCABULARY, make, tokens
from tests.engine.runners import PAGE_TOKENS, PAGES, all_pages, chunk, held_by, pages_of
from tests.engine.test_reference import error
from torch import nn

from tilepress import _native
from tilepress.engine.batch import Chunk
from tilepress.engine.decoder import ClampedSwiglu
from tilepress.engine.family import describe
from tilepress.engine.native import NativeModel
from tilepress.engine.reference import ReferenceModel
from tilepress.kernels import batch_invariant
from tilepress.models import compress_model

OPERATIONS = ["attend_f32_f32_fp_pages", "softcap_f32", "linear_f32_i8_int"]
BOUND = 1e-5  # of the largest logit
LONG = 300  # tokens: several groups of pages


def native(model, **options):
    return NativeModel(model, PAGE_TOKENS, PAGES, **{"longest": LENGTH, **options})


def reference(model, **options):
    return ReferenceModel(model, PAGE_TOKENS, PAGES, **{"longest": LENGTH, **options})


def in_chunks(runner, text, ends, pages):
    """Logits after each chunk."""
    return torch.cat([runner.run([chunk(text, start, end, pages)]) for start, end in pairwise([0, *ends])])


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return make(request.param)


@pytest.fixture(scope="module")
def llama():
    return make("llama")


def test_prompts_and_single_tokens(family):
    ends = [7, 8, 21, 30, *range(31, LENGTH + 1)]
    ours, theirs = native(family), reference(family)
    actual = in_chunks(ours, tokens(), ends, pages_of(0))
    assert error(actual, in_chunks(theirs, tokens(), ends, pages_of(0))) <= BOUND
    for layer in range(4):
        for place, page in enumerate(pages_of(0)[:3]):
            filled = min(PAGE_TOKENS, LENGTH - place * PAGE_TOKENS)
            held, expected = (held_by(one, layer, page)[:, :, :filled] for one in (ours, theirs))
            assert error(held, expected) <= BOUND


def test_a_sequence_is_the_same_bits_in_any_batch_and_in_any_chunks(family):
    text, other = tokens(), tokens(seed=2)
    alone, batched = native(family), native(family)
    expected = alone.run([chunk(text, 0, LENGTH, pages_of(0))])[0]
    first, second, third = (pages_of(number, 3) for number in range(3))
    batched.run([chunk(text, 0, 10, first, False), chunk(other, 0, 30, second, False)])
    batched.run([chunk(other, 30, 31, second), chunk(text, 10, LENGTH - 1, first, False), chunk(text, 0, 44, third)])
    actual = batched.run([chunk(text, LENGTH - 1, LENGTH, pages) for pages in (first, third)])
    assert torch.equal(actual[0], expected) and torch.equal(actual[1], expected)
    for layer in range(4):
        assert torch.equal(held_by(alone, layer, pages_of(0)[1]), held_by(batched, layer, first[1]))


@pytest.mark.parametrize("window", [None, 40, 128])
@pytest.mark.parametrize("name", ["llama", "gemma2", "phi3-longrope"])
def test_contexts_of_several_groups_of_pages(name, window):
    """Prompts in tiles, single tokens whose groups are different threads' tasks, and windows that leave groups out."""
    model = make(name, max_position_embeddings=512)
    decoder = describe(model.config)
    blocks = [replace(one, attention=replace(one.attention, sliding_window=window)) for one in decoder.blocks]
    options = {"decoder": replace(decoder, blocks=tuple(blocks)), "longest": LONG}
    text = tokens(LONG)
    expected = reference(model, **options).run([chunk(text, 0, LONG, pages_of(0))])[0]
    divisions = [[LONG], [130, 131, 255, 256, 257, LONG - 1, LONG], [LONG - 3, LONG - 2, LONG - 1, LONG]]
    whole, *others = (in_chunks(native(model, **options), text, ends, pages_of(0))[-1] for ends in divisions)
    assert error(whole, expected) <= BOUND
    assert all(torch.equal(other, whole) for other in others)


def test_it_is_the_same_bits_with_any_number_of_threads(llama):
    batch = [chunk(tokens(LENGTH, seed), 0, LENGTH - seed, pages_of(seed, 4)) for seed in range(4)]
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(native(llama).run(batch))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_steps_of_several_threads_wait_for_each_other(llama):
    runner = native(llama)
    steps = [[chunk(tokens(LENGTH, seed), 0, LENGTH, pages_of(seed, 4))] for seed in range(4)]
    expected = [runner.run(step) for step in steps]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(torch.equal, pool.map(runner.run, steps), expected))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["llama", "mixtral", "gpt_oss"])
def test_random_steps_over_random_pages(name, seed):
    model, drawn = make(name), random.Random(seed)
    texts = [tokens(drawn.randint(20, LENGTH), seed=number) for number in range(4)]
    pages, done = drawn.sample(range(PAGES), PAGES), [0] * len(texts)
    ours, theirs = native(model), reference(model)
    while open := [number for number, text in enumerate(texts) if done[number] < len(text)]:
        chosen = drawn.sample(open, drawn.randint(1, len(open)))
        ends = {number: min(done[number] + drawn.choice([1, 1, 5, 17]), len(texts[number])) for number in chosen}
        step = [chunk(texts[n], done[n], ends[n], pages[n::4], drawn.random() < 0.7) for n in chosen]
        actual, expected = ours.run(step), theirs.run(step)
        assert actual.shape == expected.shape
        assert not len(actual) or error(actual, expected) <= BOUND
        done = [ends.get(number, old) for number, old in enumerate(done)]


def with_sinks(model):
    for layer in model.model.layers:
        layer.self_attn.sinks = nn.Parameter(torch.randn(4), requires_grad=False)
    return {"attention": {"sinks": True, "attn_logit_softcapping": 0.7}}


def with_clamped_swiglu(model):
    return {"mlp": {"activation": ClampedSwiglu(1.702, 0.3)}}


def with_interleaved_gate_up(model):
    return {"mlp": {"gate_up": "interleaved"}}


def with_interleaved_rotary(model):
    rotary = describe(model.config).blocks[0].attention.rotary
    return {"attention": {"rotary": replace(rotary, interleaved=True)}}


@pytest.mark.parametrize(
    "name, change",
    [
        ("llama", with_sinks),
        ("llama", with_clamped_swiglu),
        ("phi3", with_interleaved_gate_up),
        ("llama", with_interleaved_rotary),
    ],
)
def test_what_no_dense_family_has(name, change):
    model = make(name)
    decoder, changes = describe(model.config), change(model)
    blocks = [
        replace(block, **{part: replace(getattr(block, part), **fields) for part, fields in changes.items()})
        for block in decoder.blocks
    ]
    changed = replace(decoder, blocks=tuple(blocks))
    step = [chunk(tokens(), 0, LENGTH, pages_of(0))]
    expected = reference(model, decoder=changed).run(step)
    assert error(native(model, decoder=changed).run(step), expected) <= BOUND
    assert error(native(model).run(step), expected) > 100 * BOUND


def test_pages_of_bfloat16(llama):
    exact, rounded = native(llama), native(llama, kv="bf16")
    assert 2 * rounded.page_bytes == exact.page_bytes
    ends = [20, *range(21, LENGTH + 1)]
    expected = in_chunks(exact, tokens(), ends, pages_of(0))
    assert 0 < error(in_chunks(rounded, tokens(), ends, pages_of(0)), expected) <= 2e-2
    first = pages_of(0)[0]
    assert torch.equal(held_by(rounded, 0, first), held_by(exact, 0, first).bfloat16().float())


@pytest.mark.parametrize("page_tokens", [16, 32, 64, 128])
def test_sizes_of_pages(llama, page_tokens):
    expected = native(llama).run([chunk(tokens(), 0, LENGTH, pages_of(0))])
    runner = NativeModel(llama, page_tokens, 4, longest=LENGTH)
    assert torch.equal(runner.run([Chunk(tokens(), 0, (3, 1, 2), True)]), expected)


@pytest.mark.parametrize("page_tokens", [0, 8, 24, 48, 256, -16])
def test_sizes_that_pages_cannot_have(llama, page_tokens):
    with pytest.raises(ValueError, match=f"a page has 16, 32, 64 or 128 tokens, not {page_tokens}"):
        NativeModel(llama, page_tokens)


@pytest.mark.parametrize("pages", [0, -1, 1 << 62])
def test_numbers_of_pages_that_cannot_be(llama, pages):
    with pytest.raises(ValueError, match="too many pages, or none"):
        NativeModel(llama, pages=pages)


def test_numbers_that_pages_cannot_hold(llama):
    with pytest.raises(ValueError, match="unknown choice fp8"):
        NativeModel(llama, kv="fp8")


def packed(name, weights, activations="fp", **changes):
    recipe = {
        "weights": {"format": weights, "lm_head": "compress"},
        "activations": {"format": activations},
    }
    return compress_model(make(name, tie_word_embeddings=True, **changes), recipe)


PACKED = [("int4:g32", "int8"), ("int8:row", "int8"), ("int8:row", "fp"), ("bf16", "fp")]


@pytest.mark.parametrize("weights, activations", PACKED)
def test_packed_layers(isa, weights, activations):
    model, text, ends = packed("llama", weights, activations), tokens(), [5, 30, 31, LENGTH]
    expected = in_chunks(reference(model), text, ends, pages_of(0))
    # The last bit of an activation may decide to which integer it is rounded, and that counts for all that follows.
    bound = 2e-2 if activations == "int8" else 1e-4
    assert error(in_chunks(native(model), text, ends, pages_of(0)), expected) <= bound


@pytest.mark.parametrize("weights, activations", PACKED)
def test_packed_layers_of_single_tokens(weights, activations):
    """Hardly any activation is so near the middle between two integers that the last bit decides."""
    model = packed("llama", weights, activations)
    step = [Chunk((token,), 0, (page,), True) for page, token in enumerate(tokens(PAGES))]
    close = [error(*rows) <= BOUND for rows in zip(native(model).run(step), reference(model).run(step), strict=True)]
    assert sum(close) >= PAGES * 3 // 4


@pytest.mark.parametrize("name", ["gemma3", "phi3", "olmo2", "granite"])
def test_packed_layers_of_other_families(name):
    model, step = packed(name, "int8:row"), [chunk(tokens(), 0, LENGTH, pages_of(0))]
    assert error(native(model).run(step), reference(model).run(step)) <= 1e-4


def test_plain_layers(isa, llama):
    ends = [1, 2, 30, LENGTH]
    expected = in_chunks(reference(llama), tokens(), ends, pages_of(0))
    assert error(in_chunks(native(llama), tokens(), ends, pages_of(0)), expected) <= BOUND


@pytest.mark.parametrize("weights, activations, invariant", [("int4:g32", "int8", False), ("bf16", "fp", True)])
def test_packed_layers_are_the_same_bits_in_any_batch(isa, weights, activations, invariant):
    model, text = packed("llama", weights, activations), tokens()
    with batch_invariant(invariant):
        expected = native(model).run([chunk(text, 0, LENGTH, pages_of(0))])[0]
        runner, first, second = native(model), pages_of(0, 2), pages_of(1, 2)
        runner.run([chunk(tokens(seed=2), 0, 33, second), chunk(text, 0, 17, first, False)])
        runner.run([chunk(text, 17, 44, first, False), chunk(tokens(seed=2), 33, 34, second, False)])
        actual = runner.run([chunk(tokens(seed=2), 34, 45, second), chunk(text, 44, LENGTH, first)])[1]
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_models_in_halves(name, dtype):
    """As near to the model in float32 as the reference is, which rounds at other places."""
    step = [chunk(tokens(), 0, LENGTH, pages_of(0))]
    exact, model = reference(make(name)).run(step), make(name).to(dtype)
    assert 0 < error(native(model).run(step), exact) <= 1.5 * error(reference(model).run(step), exact)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name, weights",
    [(name, weights) for name in ("llama", "gemma2", "mixtral", "gpt_oss") for weights in (None, "int4:g32")],
)
def test_what_is_not_finite_stays_in_its_sequence(name, weights, value):
    """A token whose embedding is not finite, beside one chunk and one single token of others; soft caps keep it."""
    model, bad = make(name), VOCABULARY - 1
    embedding = model.get_input_embeddings()
    embedding.weight[bad, 3] = value
    if weights:
        model = packed(name, weights, "int8")
        model.set_input_embeddings(embedding)
    others = [tuple(token for token in tokens(seed=seed) if token != bad)[:30] for seed in (1, 2)]
    spoilt = (5, 6, bad, 7)
    alone, together = native(model), native(model)
    for runner in (alone, together):
        runner.run([chunk(others[1], 0, 29, (4, 5), False)])
    expected = alone.run([chunk(others[0], 0, 30, (0, 1)), chunk(others[1], 29, 30, (4, 5))])
    actual = together.run(
        [chunk(others[0], 0, 30, (0, 1)), Chunk(spoilt, 0, (2,), True), chunk(others[1], 29, 30, (4, 5))]
    )
    assert torch.equal(actual[[0, 2], :bad], expected[:, :bad])  # the output layer may have the embedding's weights
    assert actual[1].isnan().all()


def test_pages_that_never_were_written_have_no_say(llama):
    """Places behind a sequence's last token, which another sequence left, not finite."""
    model, bad = make("llama"), VOCABULARY - 1
    model.get_input_embeddings().weight[bad] = float("nan")
    runner, text = native(model), tuple(token for token in tokens() if token != bad)
    runner.run([Chunk((bad,) * LENGTH, 0, (0, 1, 2), True)])
    assert all(page[:3].isnan().all(dim=-1).any() for page in all_pages(runner))
    expected = native(model).run([chunk(text, 0, 37, (0, 1, 2))])
    assert torch.equal(runner.run([chunk(text, 0, 37, (0, 1, 2))]), expected)


def test_weights_are_those_of_when_it_was_made():
    model, step = make("llama"), [chunk(tokens(), 0, LENGTH, pages_of(0))]
    runner = native(model)
    expected = runner.run(step)
    for parameter in model.parameters():
        parameter.zero_()
    assert torch.equal(runner.run(step), expected)


WRONG = [
    (((), 0, (0,), True), "a chunk has tokens"),
    (((5,), -1, (0,), True), "a chunk has tokens"),
    (((5,), LENGTH, (0, 1, 2), True), "a sequence has at most 45 tokens"),
    (((5,), (1 << 63) - 1, (0, 1, 2), True), "a sequence has at most 45 tokens"),
    (((5,), 16, (0,), True), "the tokens do not fit in the pages"),
    (((5,), 0, (PAGES,), True), "pages are 0 … 23, not 24"),
    (((5,), 0, (-1,), True), "pages are 0 … 23, not -1"),
    (((VOCABULARY,), 0, (0,), True), f"there is no token {VOCABULARY}"),
    (((-1,), 0, (0,), True), "there is no token -1"),
]


@pytest.mark.parametrize("wrong, message", WRONG)
def test_native_code_checks_again(llama, wrong, message):
    with pytest.raises(ValueError, match=message):
        native(llama)._native.run([wrong], torch.empty(1, VOCABULARY), 1)


def test_native_code_checks_places_and_results(llama):
    runner = native(llama)._native
    one = ((5,), 0, (0,), True)
    with pytest.raises(ValueError, match="two chunks have new tokens in the same place of a page"):
        runner.run([one, one], torch.empty(2, VOCABULARY), 1)
    for shape in [(2, VOCABULARY), (1, VOCABULARY - 1), (0, VOCABULARY)]:
        with pytest.raises(ValueError, match="logits are a row for each token whose are wanted"):
            runner.run([one], torch.empty(shape), 1)
    with pytest.raises(TypeError):
        runner.run([one], torch.empty(1, VOCABULARY, dtype=torch.float64), 1)
    with pytest.raises(ValueError, match="at least one thread"):
        runner.run([one], torch.empty(1, VOCABULARY), 0)
    with pytest.raises(ValueError, match="pages are 0"):
        runner.copy_page(0, PAGES)


@pytest.mark.parametrize("layer, page", [(4, 0), (-1, 0), (0, PAGES), (0, -1)])
def test_native_code_checks_what_is_read(llama, layer, page):
    with pytest.raises(ValueError, match=r"there is no layer|pages are 0"):
        native(llama)._native.read_page(layer, page, torch.empty(2, 2, PAGE_TOKENS, 32))
    with pytest.raises(ValueError, match=r"a page is \[kv_heads, 2, page_tokens, head_dim\]"):
        native(llama)._native.read_page(0, 0, torch.empty(2, 2, PAGE_TOKENS, 31))


def test_layers_that_do_not_fit_together(llama):
    model = make("llama")
    model.model.layers[2].mlp.down_proj = nn.Linear(96, 63)
    with pytest.raises(ValueError, match="a matrix is 63 by 96, not 64 by 96"):
        native(model)
    model = make("llama")
    model.model.layers[1].input_layernorm.weight = nn.Parameter(torch.ones(63))
    with pytest.raises(ValueError, match="a norm has 63 weights, not 64"):
        native(model)
    with pytest.raises(ValueError, match="sides must be positive"):
        _native.PlainMatrix(torch.empty(0, 3))
