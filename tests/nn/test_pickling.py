"""Layers, models and caches that have been used go through pickle, torch.save and other processes."""

import copy
import io
import multiprocessing
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from tests.nn.test_decoding import packed_model, prompt
from torch import nn
from transformers import DynamicCache

import tilepress
from tilepress import kernels, tiles
from tilepress.nn import PackedLinear, decode_natively
from tilepress.nn.model_kv_cache import set_default_cache
from tilepress.tiles import DamagedError

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT, BIAS = torch.randn(48, 64, generator=GENERATOR), torch.randn(48, generator=GENERATOR)
FORMATS = [("int4:g32", False), ("uint4:g32", True), ("bf16", True), ("mxfp4", False), ("nf4:g64", False)]


def by_pickle(thing):
    return pickle.loads(pickle.dumps(thing))


def by_torch(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIERS = [by_pickle, by_torch]


@pytest.mark.parametrize("copied", COPIERS)
@pytest.mark.parametrize(("format", "sparse"), FORMATS)
def test_a_used_layer_is_the_same_afterwards(format, sparse, copied):
    layer, x = PackedLinear(tiles.pack(WEIGHT, format, mask=WEIGHT > 0 if sparse else None), BIAS), torch.randn(5, 64)
    expected = layer(x)
    again = copied(layer)
    assert torch.equal(again(x), expected) and again.activations == layer.activations
    assert torch.equal(again.weight, layer.weight) and again.handle == kernels.register(again.matrix) != layer.handle
    assert torch.equal(torch.compile(again, backend="eager")(x), expected)
    assert all(again._buffers[name] is array for name, array in again.matrix.streams.items())


@pytest.mark.parametrize("copied", COPIERS)
def test_a_matrix_by_itself(copied):
    matrix = tiles.pack(WEIGHT, "nf4:g64", mask=WEIGHT > 0)
    expected = kernels.linear(torch.ones(1, 64), matrix)
    again = copied(matrix)
    assert torch.equal(kernels.linear(torch.ones(1, 64), again), expected) and again.format == matrix.format
    assert tiles.container.describe(again) == tiles.container.describe(matrix)
    assert copy.deepcopy(matrix).codes is not matrix.codes


def test_a_layer_that_awaits_its_arrays_still_does():
    layer = by_pickle(PackedLinear.awaiting(nn.Linear(64, 48), {"codes": torch.uint8}))
    with pytest.raises(RuntimeError, match="no weights were loaded into this layer yet"):
        layer(torch.randn(1, 64))


@pytest.mark.parametrize("part", ["codes", "scales"])
def test_arrays_that_were_changed_on_the_way_are_refused(part):
    layer = PackedLinear(tiles.pack(WEIGHT, "int4:g32"))
    whole, array = pickle.dumps(layer), getattr(layer, part).view(-1).view(torch.uint8).numpy().tobytes()
    at = whole.index(array) + 3
    with pytest.raises(DamagedError, match="the layer is damaged: its arrays are not those that were pickled"):
        pickle.loads(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])


@pytest.mark.parametrize("copied", COPIERS)
def test_arrays_of_a_matrix_that_contradict_each_other_are_refused(copied):
    matrix = tiles.pack(WEIGHT, "int4:g32", mask=WEIGHT > 0)
    matrix.offsets[1] -= 1
    with pytest.raises(DamagedError, match="mask and offsets disagree"):
        copied(matrix)


def answer(model, **options):
    return model.generate(prompt(), max_new_tokens=6, do_sample=False, **options)


@pytest.mark.parametrize("copied", COPIERS)
def test_a_model_that_has_decoded_natively(copied):
    model = packed_model(head_dim=32)
    decode_natively(model)
    set_default_cache(model, "bfp4")
    expected = answer(model)
    assert model.model.__dict__["forward"].native is not None
    again = copied(model)
    assert torch.equal(answer(again), expected)
    decoding = again.model.__dict__["forward"]
    assert decoding.model is again.model and decoding.native is not None
    assert again.__dict__["_prepare_cache_for_generation"].model is again


def _answer_elsewhere(model, inbox, outbox):
    outbox.put(answer(model, past_key_values=inbox.get()).numpy())


def test_another_process_takes_model_and_cache():
    """With spawn, where nothing is inherited."""
    model = packed_model(head_dim=32)
    decode_natively(model)
    cache = tilepress.kv_cache(model, "bfp4")
    with torch.no_grad():
        model(prompt()[:, :-1], past_key_values=cache)
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    inbox.put(cache)
    process = context.Process(target=_answer_elsewhere, args=(model, inbox, outbox), daemon=True)
    process.start()
    actual = torch.from_numpy(outbox.get(timeout=120))
    process.join(timeout=120)
    assert process.exitcode == 0 and torch.equal(actual, answer(model, past_key_values=cache))


def test_arrays_that_native_code_reads_stay_where_they_are():
    """multiprocessing moves the tensors that it pickles into shared memory, in place."""
    model = packed_model("qwen2")  # which has biases
    decode_natively(model)
    expected = answer(model)
    matrices = [module.matrix for module in model.modules() if isinstance(module, PackedLinear)]
    before = [array.data_ptr() for matrix in matrices for array in matrix.streams.values()]
    ForkingPickler.dumps(model)
    ForkingPickler.dumps(matrices[0])
    assert [array.data_ptr() for matrix in matrices for array in matrix.streams.values()] == before
    assert torch.equal(answer(model), expected)


@pytest.mark.parametrize("copied", COPIERS)
@pytest.mark.parametrize("format", ["bfp4", "bfp8+sparse:k30,v50", "sparse:k30,v50", "fp16"])
@pytest.mark.parametrize("tokens", [0, 40])
def test_a_cache_goes_on_where_it_was(tmp_path, format, tokens, copied):
    model = packed_model(head_dim=32)
    cache = tilepress.kv_cache(model, format)
    if tokens:
        with torch.no_grad():
            model(prompt(tokens), past_key_values=cache)
    again = copied(cache)
    assert again.get_seq_length() == tokens and again.model is None
    with torch.no_grad():
        assert torch.equal(*(model(prompt(3), past_key_values=one).logits for one in (again, cache)))
    if format != "fp16":
        copied(cache).save(tmp_path / "talk.safetensors")
        assert tilepress.load_kv_cache(model, tmp_path / "talk.safetensors").get_seq_length() == tokens + 3


@pytest.mark.parametrize("copied", [*COPIERS, copy.deepcopy])
def test_spare_memory_for_tokens_is_not_copied(copied):
    """It holds addresses, which mean nothing elsewhere."""
    model = packed_model()
    decode_natively(model)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(prompt(), past_key_values=cache)
        model(prompt(1), past_key_values=cache)
        assert cache.layers[0].tilepress_buffer is not None
        again = copied(cache)
        assert again.layers[0].tilepress_buffer is None
        assert torch.equal(*(model(prompt(1), past_key_values=one).logits for one in (cache, again)))
