"""Ranks, as threads of one process: what a plain sum over the parts gives, and what the whole model gives."""

import pytest
import torch
from tests.engine.families import FAMILIES, VOCABULARY, make, tokens
from tests.engine.ranks.threads import PlainRanks, Threads

from tilepress.engine.batch import Chunk
from tilepress.engine.native import NativeModel
from tilepress.engine.packed import PackedModel
from tilepress.engine.reference import ReferenceModel
from tilepress.models import compress_model

BOUND = 2e-5  # of the largest logit
LENGTH, PAGE = 45, 32
FIRST, SECOND = (3, 1, 7), (0, 2, 4)
CUT = [name for name in FAMILIES if name != "olmo2"]  # its heads are normed together
WEIGHTS = ["int4:g32", "uint4:g64", "int8:row", "mxfp4", "bf16"]
SHARED_HEADS = ["bfp8", "bfp:m4", "bfp4n+rotate"]  # formats in which a head's numbers are its own


def error(actual, expected):
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def steps_of(runner, pages=FIRST):
    """Logits of a prompt in two chunks, in the company of another sequence, and of single tokens after it."""
    text, other = tokens(LENGTH), tokens(LENGTH, seed=2)
    steps = [
        [Chunk(text[:30], 0, pages[:1], 30), Chunk(other[:5], 0, SECOND[:1], 1)],
        [Chunk(other[5:9], 5, SECOND[:1], 0), Chunk(text[30:40], 30, pages[:2], 10)],
        *([Chunk(text[at : at + 1], at, pages[:2], 1)] for at in range(40, LENGTH)),
    ]
    return torch.cat([runner.run(step) for step in steps])


def packed(name, weights, activations="fp", density=1.0, **changes):
    recipe = {"weights": {"format": weights, "lm_head": "compress"}, "activations": {"format": activations}}
    if density < 1:
        recipe["weights"]["density"] = density
    return compress_model(make(name, tie_word_embeddings=True, **changes), recipe)


@pytest.mark.parametrize("name", CUT)
def test_every_family_as_the_whole_model(name):
    model = make(name)
    assert error(steps_of(Threads(model, 2)), steps_of(NativeModel(model, longest=128))) <= BOUND


@pytest.mark.parametrize("ranks", [2, 3, 6])
@pytest.mark.parametrize("name", ["llama", "granite", "phi3"])
def test_as_plain_sums_of_the_parts(name, ranks):
    """Three and six ranks have not all of them heads."""
    model = make(name)
    actual = Threads(model, ranks).run([Chunk(tokens(LENGTH), 0, FIRST[:2], LENGTH)])
    plain = PlainRanks(model, ranks).logits(tokens(LENGTH))
    assert error(actual, plain) <= BOUND
    whole = ReferenceModel(model, longest=128).run([Chunk(tokens(LENGTH), 0, FIRST[:2], LENGTH)])
    assert error(plain, whole) <= BOUND


@pytest.mark.parametrize("name", ["gpt_oss", "mixtral"])
def test_experts_as_plain_sums_of_the_parts(name):
    model = make(name)
    actual = Threads(model, 2).run([Chunk(tokens(LENGTH), 0, FIRST[:2], LENGTH)])
    assert error(actual, PlainRanks(model, 2).logits(tokens(LENGTH))) <= BOUND


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_packed_weights(weights, ranks):
    model = packed("llama", weights)
    assert error(steps_of(Threads(model, ranks)), steps_of(NativeModel(model, longest=128))) <= 1e-4


@pytest.mark.parametrize("name", ["qwen3_moe", "phi3"])
def test_packed_experts_and_joined_layers(name):
    model = packed(name, "int4:g16", density=0.5)
    assert error(steps_of(Threads(model, 2)), steps_of(NativeModel(model, longest=128))) <= 1e-4


def test_integer_activations_have_scales_of_each_rank():
    """So they are rounded in another way where a layer is cut by columns, but no worse."""
    model = packed("llama", "int4:g32", "int8")
    exact = steps_of(NativeModel(packed("llama", "int4:g32"), longest=128))
    one, two = (error(steps_of(runner), exact) for runner in (NativeModel(model, longest=128), Threads(model, 2)))
    assert 0 < two <= 2 * one
    plain = PlainRanks(model, 2).logits(tokens(LENGTH))
    assert error(Threads(model, 2).run([Chunk(tokens(LENGTH), 0, FIRST[:2], LENGTH)]), plain) <= 2e-2


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("kv", SHARED_HEADS)
def test_packed_keys_and_values(kv, name):
    """The last bit of a key may decide how it is rounded, and that counts for all later tokens: far less than what the
    cache changes. Until then there is no difference."""
    model = make(name)
    whole, exact = (steps_of(one) for one in (PackedModel(model, kv, longest=128), NativeModel(model, longest=128)))
    actual = steps_of(Threads(model, 2, kv))
    assert (actual - whole).norm() <= 0.2 * (exact - whole).norm()
    assert error(actual[:10], whole[:10]) <= BOUND < error(exact[:10], whole[:10])


def test_sparse_keys_and_values_are_thinned_out_among_a_rank_s_heads():
    model, kv = make("llama"), "sparse:k30,v50"
    exact = steps_of(NativeModel(model, longest=128))
    runners = PackedModel(model, kv, longest=128), Threads(model, 2, kv)
    one, two = (error(steps_of(runner), exact) for runner in runners)
    assert 0 < two <= 2 * one


def test_the_same_bits_in_every_run():
    model = packed("llama", "int4:g32")
    assert torch.equal(steps_of(Threads(model, 3)), steps_of(Threads(model, 3)))


def test_copies_of_pages():
    model, text = make("llama"), tokens(40)
    ranks = Threads(model, 3)
    ranks.run([Chunk(text, 0, FIRST[:2], 0)])
    ranks.copy_page(FIRST[1], 9)
    one, two = ranks.run([Chunk((5,), 40, FIRST[:2], 1), Chunk((5,), 40, (FIRST[0], 9), 1)])
    assert torch.equal(one, two)


def test_a_sequence_that_one_rank_cannot_go_on_with_is_lost_in_all():
    model = make("llama")
    dim = model.config.head_dim
    keys = model.model.layers[-1].self_attn.k_proj
    keys.bias[dim:] = float("nan")  # of the head that rank 1 has, in the last layer
    ranks = Threads(model, 2, "bfp8")
    logits = ranks.run([Chunk(tokens(40), 0, FIRST[:2], 1)])
    assert logits.isnan().all()
    for runner in ranks.runners:
        assert [sequence.spoiled for sequence in runner._open.values()] == [True] and not runner._blocks


def test_logits_in_pieces():
    """Of more tokens than ranks exchange at a time, and of parts of different widths."""
    model = make("llama", vocab_size=150_001, num_hidden_layers=1)
    text = tuple(token % VOCABULARY for token in tokens(3))
    step = [Chunk(text, 0, FIRST[:1], 3)]
    assert error(Threads(model, 2).run(step), NativeModel(model, longest=128).run(step)) <= BOUND
