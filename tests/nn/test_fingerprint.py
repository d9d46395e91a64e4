"""Which model a cache is of."""

import copy
import gc

import pytest
import torch
from tests.models.tiny import GATED, make
from tests.nn.test_decoding import packed_model, prompt
from transformers import LlamaConfig, LlamaForCausalLM

import tilepress
from tilepress.nn import fingerprint as module
from tilepress.nn.fingerprint import fingerprint

ANOTHER = "another model's cache: the weights that made it are not this model's"


def llama(**changes):
    return make("llama", head_dim=32, **changes)


def bump(weight):
    """The smallest change of the last of its numbers."""
    weight.data.view(-1)[-1] = torch.nextafter(weight.data.view(-1)[-1], torch.tensor(torch.inf))


CHANGES = {
    "the last block": lambda model: bump(model.model.layers[-1].mlp.down_proj.weight),
    "a norm": lambda model: bump(model.model.norm.weight),
    "the embedding": lambda model: bump(model.model.embed_tokens.weight),
    "its config": lambda model: setattr(model.config, "rms_norm_eps", 1e-3),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_cache_of_a_model_that_differs_in_one_thing_is_refused(tmp_path, what):
    model, path = llama(), tmp_path / "talk.safetensors"
    cache = tilepress.kv_cache(model, "bfp4")
    with torch.no_grad():
        model(prompt(), past_key_values=cache)
    cache.save(path)
    other = llama()
    CHANGES[what](other)
    with pytest.raises(ValueError, match=ANOTHER):
        tilepress.load_kv_cache(other, path)
    assert tilepress.load_kv_cache(llama(), path).get_seq_length() == prompt().shape[1]


def test_packed_layers_count_with_their_weights_and_activations():
    first = fingerprint(packed_model(format="int8:g32"))
    assert fingerprint(packed_model(format="int8:g32")) == first
    different = [packed_model(format="int4:g32"), packed_model(activations="int8")]
    changed = packed_model()
    changed.model.layers[-1].mlp.up_proj = copy.deepcopy(changed.model.layers[-1].mlp.gate_proj)
    for other in (*different, changed):
        assert not fingerprint(other).matches(first)


def test_the_type_that_a_model_is_loaded_in_does_not_make_it_another():
    single, half = fingerprint(llama()), fingerprint(llama().to(torch.bfloat16))
    assert half != single and half.matches(single) and single.matches(half)
    other = llama()
    other.model.layers[1].mlp.up_proj.weight.data[0, 0] += 0.5
    assert not fingerprint(other.to(torch.bfloat16)).matches(single)


def test_what_the_config_says_beside_the_model_does_not_count(tmp_path):
    model = llama()
    model.save_pretrained(tmp_path)
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    tilepress.kv_cache(again, "bfp4")  # which sets its attention
    again.config.use_cache = False
    assert fingerprint(again).matches(fingerprint(model))


def test_weights_are_read_once_until_they_change(monkeypatch):
    model, count = llama(), []
    real = module._compute
    monkeypatch.setattr(module, "_compute", lambda model: count.append(1) or real(model))
    first = fingerprint(model)
    assert fingerprint(model) == first and len(count) == 1
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    assert fingerprint(model) != first and len(count) == 2
    model.model.norm.weight = torch.nn.Parameter(torch.ones(64))
    assert fingerprint(model) == first and len(count) == 3


def test_making_a_cache_reads_no_weights(monkeypatch):
    monkeypatch.setattr(module, "_compute", lambda _: pytest.fail("weights were read"))
    model = llama()
    cache = tilepress.kv_cache(model, "bfp4")
    model.generate(prompt(), past_key_values=cache, max_new_tokens=2)


def test_weights_that_changed_under_a_cache_are_said(tmp_path):
    model = llama()
    cache = tilepress.kv_cache(model, "bfp4")
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    with pytest.raises(ValueError, match="weights have changed since this cache was made: make another cache"):
        cache.save(tmp_path / "talk.safetensors")
    assert not (tmp_path / "talk.safetensors").exists()


def test_a_cache_does_not_keep_its_model(tmp_path):
    model = llama()
    cache = tilepress.kv_cache(model, "bfp4")
    assert cache.model is model
    del model
    gc.collect()
    assert cache.model is None
    with pytest.raises(ValueError, match="the model of this cache is gone: save or pickle the cache before that"):
        cache.save(tmp_path / "talk.safetensors")


def test_tied_and_untied_weights_are_told_apart():
    tied, untied = (LlamaForCausalLM(LlamaConfig(**GATED, tie_word_embeddings=tie)) for tie in (True, False))
    untied.load_state_dict(tied.state_dict())
    assert not fingerprint(tied).matches(fingerprint(untied))
