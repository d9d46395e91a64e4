"""Threads that share a KV cache, and more threads than a process can have."""

import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tests.models.tiny import GATED
from tests.nn.test_decoding import packed_model, prompt

import tilepress
from tilepress import kernels, tiles
from tilepress import nn as packed_nn
from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import kv_store
from tilepress.nn.layer_kv_cache import LayerKvCache
from tilepress.tiles.packing import MOST_THREADS

SECONDS = float(os.environ.get("TILEPRESS_STRESS_SECONDS", "1.5"))  # 600 for a long run
IN_USE = "the cache is in use by another thread: give each thread a cache of its own"


def test_threads_that_append_attend_crop_select_and_save_one_cache():
    program = Path(__file__).with_name("cache_stress.py")
    done = subprocess.run([sys.executable, program, str(SECONDS), "8"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("calls by 8 threads") == 4


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_no_token_is_lost(name):
    """What all threads append is there in the end, though the cache is exchanged for another by `select` meanwhile."""
    cache, rounds = kv_store(parse_kv(name), 2, 2, 32), 40

    def add(number):
        keys = torch.full((2, 2, 1, 32), float(number + 1))
        for _ in range(rounds):
            cache.append(keys, keys)
            if number == 0:
                cache.select([1, 0])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(8)))
    assert cache.lengths == [8 * rounds, 8 * rounds]


def test_a_cache_is_made_once_for_threads_that_all_come_first():
    for _ in range(20):
        cache, barrier = kv_store(parse_kv("bfp8"), 1, 2, 32), threading.Barrier(8)

        def add(_, cache=cache, barrier=barrier):
            barrier.wait()
            cache.append(torch.ones(1, 2, 1, 32), torch.ones(1, 2, 1, 32))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(add, range(8)))
        assert cache.lengths == [8]


def layer_with_tokens():
    layer = LayerKvCache(parse_kv("bfp8"))
    states = torch.ones(1, 2, 3, 32)
    tokens, _ = layer.update(states, states)
    layer.attend(tokens, torch.ones(1, 4, 3, 32), None, 0.125)
    return layer


def in_another_thread(call):
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


@pytest.mark.parametrize(
    "call",
    [
        lambda layer: layer.update(torch.ones(1, 2, 1, 32), torch.ones(1, 2, 1, 32)),
        lambda layer: layer.crop(-1),
        lambda layer: layer.reorder_cache(torch.tensor([0])),
        lambda layer: layer.reset(),
    ],
    ids=["update", "crop", "reorder", "reset"],
)
def test_a_second_thread_is_refused_while_a_layer_is_used(call):
    layer = layer_with_tokens()
    with layer.one_thread, pytest.raises(RuntimeError, match=IN_USE):
        in_another_thread(lambda: call(layer))
    assert layer.columns == 3
    in_another_thread(lambda: call(layer))  # but one after the other is fine


def test_tokens_of_another_thread_between_update_and_attention_are_noticed():
    layer, states = layer_with_tokens(), torch.ones(1, 2, 1, 32)
    mine, _ = layer.update(states, states)
    in_another_thread(lambda: layer.update(2 * states, states))
    with pytest.raises(RuntimeError, match=IN_USE):
        layer.attend(mine, torch.ones(1, 4, 1, 32), None, 0.125)


@pytest.fixture
def generating(monkeypatch):
    """A model that decodes natively, and a packed cache that holds a prompt."""
    monkeypatch.setitem(GATED, "head_dim", 32)
    model = packed_model()
    packed_nn.decode_natively(model)
    cache = tilepress.kv_cache(model, "bfp8")
    with torch.no_grad():
        model(prompt(), past_key_values=cache)
        yield model, cache


def test_a_copied_cache_is_not_held_up_by_its_origin(generating):
    model, cache = generating
    twin = copy.deepcopy(cache)
    with cache.layers[0].one_thread:
        in_another_thread(torch.no_grad()(lambda: model(prompt(1), past_key_values=twin)))
    assert twin.get_seq_length() == 8 and cache.get_seq_length() == 7


def test_one_cache_for_two_layers_is_refused(generating):
    model, cache = generating
    cache.layers[1] = cache.layers[0]
    with pytest.raises(ValueError, match="two layers have the same cache"):
        model(prompt(1), past_key_values=cache)
    assert cache.get_seq_length() == 7


def test_a_token_that_another_thread_added_is_noticed_and_nothing_is_added(generating):
    model, cache = generating
    cache.layers[1].store.append(torch.ones(1, 2, 1, 32), torch.ones(1, 2, 1, 32))
    with pytest.raises(RuntimeError, match="the cache holds 8 tokens, not 7: another thread uses it"):
        model(prompt(1), past_key_values=cache)
    assert [layer.store.lengths for layer in cache.layers] == [[7], [8], [7]]


def test_a_cache_that_grows_while_it_is_saved_is_not_saved(generating, tmp_path):
    _, cache = generating
    cache.layers[2].store.append(torch.ones(1, 2, 1, 32), torch.ones(1, 2, 1, 32))
    with pytest.raises(RuntimeError, match=IN_USE):
        cache.save(tmp_path / "cache.safetensors")
    assert not list(tmp_path.iterdir())


def test_threads_that_decode_with_one_cache_lose_no_token(generating):
    """Each token is in all layers, or in none and its thread gets an error."""
    model, cache = generating

    @torch.no_grad()
    def decode(_):
        done = 0
        for _ in range(30):
            try:
                model(prompt(1), past_key_values=cache)
                done += 1
            except RuntimeError as error:
                assert "another thread" in str(error)
        return done

    with ThreadPoolExecutor(4) as threads:
        done = sum(threads.map(decode, range(4)))
    assert [layer.store.lengths for layer in cache.layers] == [[7 + done]] * 3 and done


def test_a_model_that_decoded_natively_is_let_go(generating):
    model, cache = generating
    model(prompt(1), past_key_values=cache)
    twin = packed_model()
    packed_nn.decode_natively(twin)
    cache = tilepress.kv_cache(twin, "bfp8")
    for length in (7, 1):
        twin(prompt(length), past_key_values=cache)
    gone = weakref.ref(twin)
    del twin
    gc.collect()
    assert gone() is None


TOO_MANY = """
import torch
from tilepress import _native, kernels, tiles
from tilepress.formats.kv import parse_kv
from tilepress.kernels.kv_store import kv_store
weight, x = torch.randn(3000, 100), torch.randn(40, 100)
for threads in (200_000, 2**31 - 1, 2**40):
    packed = tiles.pack(weight, "int4:g32", sparse=True, threads=threads)
    tiles.unpack(packed, threads=threads)
    tiles.unpack_codes(packed, threads=threads)
    tiles.pack_codes(tiles.unpack_codes(packed)[0], "int4:g32", threads=threads)
    alone = kernels.linear(x, packed, threads=1)
    assert torch.equal(kernels.linear(x, packed, threads=threads), alone)
    assert torch.equal(kernels.linear(x, packed, variant="linear_f32_f32_any", threads=threads),
                       kernels.linear(x, packed, variant="linear_f32_f32_any", threads=1))
    kernels.unpack_planes(kernels.pack_planes(x, "bfp:g64:m7", threads=threads), threads=threads)
    cache = kv_store(parse_kv("bfp4"), 1, 2, 32)
    cache.append(torch.randn(1, 2, 3, 32), torch.randn(1, 2, 3, 32), threads=threads)
    cache.attend(torch.randn(1, 4, 3, 32), torch.randn(1, 2, 3, 32), torch.randn(1, 2, 3, 32), 1.0, threads=threads)
_native.read_bandwidth(torch.ones(1 << 22, dtype=torch.uint8).numpy(), False, 200_000)
torch.get_num_threads = lambda: 200_000  # as OMP_NUM_THREADS could say; to set it would end torch itself
kernels.linear(x[:1], packed)
print(len(list(__import__("pathlib").Path("/proc/self/task").iterdir())))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_more_threads_than_a_process_can_have():
    done = subprocess.run([sys.executable, "-c", TOO_MANY], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 2 * MOST_THREADS


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_refused(threads):
    packed = tiles.pack(torch.randn(16, 32), "int8:row")
    with pytest.raises(ValueError, match="at least one thread is needed"):
        kernels.linear(torch.randn(1, 32), packed, threads=threads)
    with pytest.raises(ValueError, match="at least one thread is needed"):
        kernels.pack_planes(torch.randn(1, 64), "bfp:g64:m7", threads=threads)
