"""What transformers does with a cache: generation, beams, turns, cropping, copies."""

import copy

import pytest
import torch
from tests.nn.kv_models import PACKED_FORMATS, close, logits, make, prompt

import tilepress
from tilepress.nn.kv_emulation import emulate_kv
from tilepress.nn.layer_kv_cache import LayerKvCache


def recomputed(model, tokens, name, **options):
    """Text without any cache: every token from all before it, with the numbers that the cache gives."""
    emulate_kv(model, name)
    every = torch.ones_like(tokens)
    text = model.generate(tokens, attention_mask=every, use_cache=False, do_sample=False, **options)
    emulate_kv(model, "none")
    return text


@pytest.mark.parametrize("name", PACKED_FORMATS)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_return_sequences": 2, "num_beams": 2}])
def test_generation(name, options):
    model, tokens = make(), prompt(25, batch=2)
    options = {"max_new_tokens": 14, **options}
    plain = model.generate(tokens, do_sample=False, **options)
    expected = recomputed(model, tokens, name, **options)
    cache = tilepress.kv_cache(model, name)
    assert torch.equal(model.generate(tokens, past_key_values=cache, do_sample=False, **options), expected)
    assert type(cache.layers[0]) is LayerKvCache and cache.get_seq_length() == 38
    assert torch.equal(model.generate(tokens, do_sample=False, **options), plain)  # the model is what it was


@pytest.mark.parametrize("name", PACKED_FORMATS)
def test_generation_with_padding(name):
    model, tokens = make(), prompt(25, batch=2)
    mask = torch.ones(2, 25, dtype=torch.long)
    mask[1, :7] = 0
    options = {"max_new_tokens": 14, "do_sample": False}
    actual = model.generate(tokens, attention_mask=mask, past_key_values=tilepress.kv_cache(model, name), **options)
    for row, begin in enumerate((0, 7)):
        alone = tokens[row : row + 1, begin:]
        expected = model.generate(alone, past_key_values=tilepress.kv_cache(model, name), **options)
        assert torch.equal(actual[row : row + 1, begin:], expected)


@pytest.mark.parametrize("name", PACKED_FORMATS)
def test_a_talk_of_several_turns(name):
    model = make()
    cache = tilepress.kv_cache(model, name)
    talk = prompt(30)
    for turn in range(3):
        talk = torch.cat([talk, prompt(7, seed=turn)], 1)
        expected = recomputed(model, talk, name, max_new_tokens=9)
        model.set_attn_implementation("tilepress")
        options = {"attention_mask": torch.ones_like(talk), "max_new_tokens": 9, "do_sample": False}
        talk = model.generate(talk, past_key_values=cache, **options)
        assert torch.equal(talk, expected)
    assert cache.get_seq_length() == talk.shape[1] - 1


@pytest.mark.parametrize("family", ["llama", "sliding"])
@pytest.mark.parametrize("name", ["bfp8", "sparse:k30,v50", "bfp8+sparse:k30,v50"])
def test_a_cropped_cache_goes_on_from_where_it_was_cut(family, name):
    """Where nothing has been truncated or left out since."""
    model, tokens = make(family), prompt(60)
    cut, fresh = (tilepress.kv_cache(model, name) for _ in range(2))
    logits(model, tokens, cut)
    cut.crop(-9)
    assert cut.get_seq_length() == 51
    logits(model, tokens[:, :51], fresh)
    assert close(logits(model, prompt(5, seed=3), cut), logits(model, prompt(5, seed=3), fresh), 0.01)


@pytest.mark.parametrize("name", ["bfp8", "sparse:k0,v10"])
def test_assisted_decoding_crops_by_itself(name):
    model, helper, tokens = make(), make("multi-query"), prompt(25)
    expected = recomputed(model, tokens, name, max_new_tokens=10)
    cache = tilepress.kv_cache(model, name)
    options = {"max_new_tokens": 10, "do_sample": False, "assistant_model": helper}
    assert torch.equal(model.generate(tokens, past_key_values=cache, **options), expected)


def test_copies_are_independent():
    model, tokens = make(), prompt(40)
    cache = tilepress.kv_cache(model, "bfp4")
    logits(model, tokens, cache)
    twin = copy.deepcopy(cache)
    first = logits(model, prompt(5, seed=1), cache)
    assert torch.equal(logits(model, prompt(5, seed=1), twin), first)
    assert cache.get_seq_length() == twin.get_seq_length() == 45


@pytest.mark.parametrize("name", PACKED_FORMATS)
def test_sequences_are_repeated_and_chosen(name):
    model = make()
    cache = tilepress.kv_cache(model, name)
    logits(model, prompt(40, batch=2), cache)
    cache.batch_repeat_interleave(2)
    assert cache.batch_size == 4
    cache.batch_select_indices(torch.tensor([0, 3]))
    both = tilepress.kv_cache(model, name)
    logits(model, prompt(40, batch=2), both)
    assert torch.equal(logits(model, prompt(3, batch=2), cache), logits(model, prompt(3, batch=2), both))
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.nbytes == 0
