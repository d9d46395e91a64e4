"""Experts in the native step, beside what test_native.py has of every family: how their work is divided, layers that
are packed, and rows that are not finite."""

from dataclasses import replace

import pytest
import torch
from tests.engine.families import LENGTH, logits, make, tokens
from tests.engine.runners import PAGE_TOKENS, PAGES, chunk, pages_of
from tests.engine.test_native import BOUND, PACKED, native, reference
from tests.engine.test_reference import error
from torch import nn

from tilepress import _native
from tilepress.engine.batch import Chunk
from tilepress.engine.family import describe
from tilepress.engine.native import NativeModel
from tilepress.engine.opening import is_native
from tilepress.kernels import batch_invariant
from tilepress.models import compress_model

OPERATIONS = ["linear_f32_i8_int"]
FAMILIES = ["mixtral", "qwen3_moe-normed", "gpt_oss"]
MANY = {"num_experts": 11, "num_experts_per_tok": 3, "moe_intermediate_size": 36}  # last blocks of rows are not whole
DENSE, SPARSE = {}, {"density": 0.5}


def packed(name, weights, activations="fp", more=DENSE, **changes):
    recipe = {"weights": {"format": weights, **more}, "activations": {"format": activations}}
    return compress_model(make(name, **changes), recipe)


def single_tokens(count=PAGES):
    """A step of as many sequences, of one token each."""
    return [Chunk((token,), 0, (page,), True) for page, token in enumerate(tokens(count))]


@pytest.mark.parametrize("name", FAMILIES)
def test_as_transformers(name):
    model, text = make(name), tokens()
    assert is_native(model)
    actual = native(model).run([Chunk(text, 0, pages_of(0)[:3], LENGTH)])
    assert error(actual, logits(model, text)) <= BOUND


def test_it_is_the_same_bits_with_any_number_of_threads():
    """One thread takes whole experts, several take parts of them."""
    model = make("qwen3_moe", **MANY)
    step = [chunk(tokens(LENGTH, seed), 0, LENGTH - seed, pages_of(seed, 4)) for seed in range(4)]
    runner, results = native(model), []
    for runner.threads in (1, 2, 5):
        results.append(runner.run(step))
    assert error(results[0], reference(model).run(step)) <= BOUND
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("more", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("weights, activations", [*PACKED, ("uint4:g32", "int8"), ("mxfp4", "fp")])
@pytest.mark.parametrize("name", FAMILIES)
def test_packed_layers(name, weights, activations, more):
    """Hardly any activation is so near the middle between two integers that the last bit decides."""
    model, step = packed(name, weights, activations, more), single_tokens()
    runner = native(model)
    runner.threads = 5
    close = [error(*rows) <= BOUND for rows in zip(runner.run(step), reference(model).run(step), strict=True)]
    assert sum(close) >= PAGES * 3 // 4


@pytest.mark.parametrize("more", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("weights, activations, invariant", [("int8:row", "int8", False), ("bf16", "fp", True)])
def test_packed_layers_are_the_same_bits_in_any_batch(isa, weights, activations, invariant, more):
    """Whatever the batch, the chunks, and the number of threads."""
    model, text, other = packed("qwen3_moe", weights, activations, more, **MANY), tokens(), tokens(seed=2)
    with batch_invariant(invariant):
        expected = native(model).run([chunk(text, 0, LENGTH, pages_of(0))])[0]
        runner, first, second = native(model), pages_of(0, 2), pages_of(1, 2)
        for runner.threads, step in [
            (1, [chunk(other, 0, 33, second), chunk(text, 0, 17, first, False)]),
            (3, [chunk(text, 17, 44, first, False), chunk(other, 33, 34, second)]),
            (5, [chunk(other, 34, 45, second), chunk(text, 44, LENGTH, first)]),
        ]:
            actual = runner.run(step)
    assert torch.equal(actual[1], expected)


def test_packed_layers_of_experts_that_many_tokens_reach(isa):
    """One of one: it has the rows of all."""
    model = packed("mixtral", "int8:row", num_local_experts=1, num_experts_per_tok=1)
    step = [chunk(tokens(LENGTH, seed), 0, LENGTH, pages_of(seed, 4)) for seed in range(4)]
    assert error(native(model).run(step), reference(model).run(step)) <= 1e-4


def test_more_rows_than_are_computed_at_once():
    """That many of them take more memory between an expert's layers than there is for it."""
    wide = {"intermediate_size": 4096, "num_local_experts": 2, "num_hidden_layers": 1, "num_attention_heads": 2}
    model, longest = make("mixtral", **wide), 64
    pages = longest // PAGE_TOKENS
    runner = NativeModel(model, PAGE_TOKENS, 48 * pages, longest=longest)
    step = [Chunk(tokens(longest, seed), 0, tuple(range(seed * pages, (seed + 1) * pages)), 1) for seed in range(48)]
    assert 48 * longest * 2 * (64 + 3 * 4096) > 1 << 26
    expected = torch.cat([runner.run([one]) for one in step])
    assert torch.equal(runner.run(step), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FAMILIES)
def test_models_in_halves(name, dtype):
    """As near to the model in float32 as the reference is, which rounds at other places; but where that sends a token
    to another expert."""
    exact, model = reference(make(name)).run(single_tokens()), make(name).to(dtype)
    ours, theirs = (
        sorted(error(*rows) for rows in zip(runner(model).run(single_tokens()), exact, strict=True))
        for runner in (native, reference)
    )
    assert 0 < ours[PAGES // 2] <= 1.5 * theirs[PAGES // 2]


def test_of_equal_logits_the_first():
    model = make("mixtral")
    for layer in model.model.layers:
        layer.mlp.gate.weight.zero_()
    step = [chunk(tokens(), 0, LENGTH, pages_of(0))]
    expected = native(model).run(step)
    for layer in model.model.layers:
        layer.mlp.experts.gate_up_proj[2:] = 7
    assert torch.equal(native(model).run(step), expected)
    layer.mlp.experts.gate_up_proj[1] = 7
    assert not torch.equal(native(model).run(step), expected)


@pytest.mark.parametrize("weights", [None, "int8:row"])
def test_what_overflows_in_an_expert_stays_with_its_tokens(weights):
    changes = {"num_hidden_layers": 1}
    model = packed("mixtral", weights, "int8", **changes) if weights else make("mixtral", **changes)
    expected, spoilt = native(model).run(single_tokens()), model.model.layers[0].mlp.experts
    if weights:
        spoilt.get_submodule("1").gate_up_proj = nn.Linear(64, 192, bias=False)
        spoilt.get_submodule("1").gate_up_proj.weight.data.normal_(0, 1e30)
    else:
        spoilt.gate_up_proj[1].normal_(0, 1e30)
    actual = native(model).run(single_tokens())
    bad = actual.isnan().any(-1)
    assert 0 < bad.sum() < PAGES and actual[bad].isnan().all()
    assert torch.equal(actual[~bad], expected[~bad])


def test_a_router_whose_logits_are_not_finite():
    """All experts are as likely as none: there is no sum of them."""
    model = make("gpt_oss")
    model.model.layers[2].mlp.router.bias[3] = float("nan")
    assert native(model).run(single_tokens()).isnan().all()


@pytest.mark.parametrize("bits", [255, 0])
def test_a_matrix_that_changed_after_it_was_checked(bits):
    """An error, in whatever thread, and not the end of the process; the next step is as if nothing had been."""
    model, step = packed("mixtral", "int8:row", "int8", SPARSE), single_tokens()
    runner = native(model)
    runner.threads = 5
    expected = runner.run(step)
    mask = model.model.layers[3].mlp.experts.get_submodule("2").down_proj.matrix.mask
    before = mask.clone()
    mask.fill_(bits)
    with pytest.raises(RuntimeError, match="the matrix changed while it was used"):
        runner.run(step)
    mask.copy_(before)
    assert torch.equal(runner.run(step), expected)


def with_other_experts(model):
    model.model.layers[2].mlp.experts.down_proj = nn.Parameter(torch.ones(4, 64, 95))


def with_another_router(model):
    model.model.layers[2].mlp.gate.weight = nn.Parameter(torch.ones(5, 64))


def with_a_router_of_other_inputs(model):
    model.model.layers[2].mlp.gate.weight = nn.Parameter(torch.ones(4, 63))


@pytest.mark.parametrize(
    "change, message",
    [
        (with_other_experts, "a matrix is 192 by 64, not 190 by 64"),
        (with_another_router, "a matrix is 5 by 64, not 4 by 64"),
        (with_a_router_of_other_inputs, "a matrix is 4 by 63, not 4 by 64"),
    ],
)
def test_layers_that_do_not_fit_together(change, message):
    model = make("mixtral")
    change(model)
    with pytest.raises(ValueError, match=message):
        native(model)


def test_experts_of_different_sizes():
    model = packed("mixtral", "int8:row")
    expert = model.model.layers[0].mlp.experts.get_submodule("3")
    expert.gate_up_proj, expert.down_proj = nn.Linear(64, 64), nn.Linear(32, 64)
    with pytest.raises(ValueError, match="a matrix is 64 by 64, not 192 by 64"):
        native(model)


def test_more_experts_per_token_than_there_are():
    model = make("mixtral")
    decoder = describe(model.config)
    of_many = replace(decoder.blocks[0].mlp.experts, num_experts=8, num_experts_per_tok=5)
    blocks = [replace(block, mlp=replace(block.mlp, experts=of_many)) for block in decoder.blocks]
    with pytest.raises(ValueError, match="a row goes to 1 … 4 experts, not 5"):
        native(model, decoder=replace(decoder, blocks=tuple(blocks)))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda given: {"chosen": 0}, "a row goes to 1 … 4 experts, not 0"),
        (lambda given: {"router": None}, "a block has one feed-forward network, or a router and experts"),
        (lambda given: {"networks": []}, "a block has one feed-forward network, or a router and experts"),
        (lambda given: {"networks": [(*one, one[1]) for one in given["networks"]]}, "is .list of gate and up, down"),
        (lambda given: {"networks": [one[::-1] for one in given["networks"]]}, "is .list of gate and up, down"),
        (lambda given: {"networks": [7]}, "is .list of gate and up, down"),
        (lambda given: {"networks": [([], one[1]) for one in given["networks"]]}, "gate and up have two matrices, or"),
        (lambda given: {"networks": halved(given["networks"])}, "an expert's gate and up have one matrix"),
    ],
)
def test_native_code_checks_again(monkeypatch, change, message):
    made = _native.StepBlock
    monkeypatch.setattr(_native, "StepBlock", lambda **given: made(**{**given, **change(given)}))
    with pytest.raises(ValueError, match=message):
        native(make("mixtral"))


def halved(networks):
    """With gate and up as a matrix each."""
    half = (_native.PlainMatrix(torch.ones(96, 64)), None)
    return [([half, half], down) for _, down in networks]
