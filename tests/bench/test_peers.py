"""Peers multiply rightly, and are refused where they have no real kernel."""

import importlib.util

import pytest
import torch

from tilepress.bench import peers
from tilepress.bench.peers import PEERS
from tilepress.bench.shapes import Shape

SHAPE = Shape(64, 128)
NAMES = [peer.name for peer in PEERS]
# Relative to the largest result: weights of 8 and of 4 bits, activations of 8.
BOUNDS = {"torch float32": 1e-5, "torch bfloat16": 0.02, "torch int8pack": 0.02}
FOUR_BITS = 0.12


@pytest.fixture(params=PEERS, ids=NAMES)
def peer(request):
    return request.param


@pytest.mark.parametrize("batch", [1, 5])
def test_a_peer_multiplies_with_every_copy(peer, batch, monkeypatch):
    if (reason := peer.refusal(SHAPE)) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(peers, "copies_of", lambda size, allowance: 3)
    weight = torch.randn(SHAPE.neurons, SHAPE.inputs, generator=torch.Generator().manual_seed(0))
    x = torch.randn(batch, SHAPE.inputs, generator=torch.Generator().manual_seed(1))
    entrant = peer.load(weight, 1 << 20, 2)
    call, expected = entrant.prepare(x), x @ weight.T
    for _ in range(4):
        y = call().float().clone()
        assert y.shape == (batch, SHAPE.neurons)
        assert float((y - expected).abs().max()) < BOUNDS.get(peer.name, FOUR_BITS) * float(expected.abs().max())
    assert entrant.name == peer.name and entrant.is_peer and entrant.kernel(batch)
    assert 4.5 <= entrant.weight_bytes * 8 / weight.numel() < 33


def test_float32_is_always_a_peer():
    assert PEERS[0].name == "torch float32" and PEERS[0].refusal(Shape(1, 1)) is None


def refusal(name, shape=SHAPE):
    return PEERS[NAMES.index(name)].refusal(shape)


@pytest.mark.parametrize("feature", ["amx_bf16", "avx512_bf16", "bf16"])
def test_bfloat16_only_where_the_processor_has_it(feature, monkeypatch):
    monkeypatch.setattr(peers, "cpu_features", lambda: [feature])
    assert refusal("torch bfloat16") is None
    monkeypatch.setattr(peers, "cpu_features", lambda: ["avx2", "asimddp"])
    assert refusal("torch bfloat16") == "this processor has no bfloat16 instructions; torch would emulate them"


def test_kleidiai_only_where_torch_has_it(monkeypatch):
    monkeypatch.setattr(torch.backends.kleidiai, "is_available", lambda: True)
    monkeypatch.setattr(peers, "cpu_features", lambda: ["asimddp"])
    assert refusal("torch KleidiAI int4:g32") is None
    assert refusal("torch KleidiAI int4:g32", Shape(8, 33)) == "it takes whole groups of 32 inputs, not 33"
    monkeypatch.setattr(peers, "cpu_features", lambda: [])
    assert "no dot products (asimddp)" in refusal("torch KleidiAI int4:g32")
    monkeypatch.setattr(torch.backends.kleidiai, "is_available", lambda: False)
    assert "built without KleidiAI" in refusal("torch KleidiAI int4:g32")


@pytest.mark.parametrize(("capability", "good"), [("AVX512", True), ("AVX2", True), ("DEFAULT", False)])
def test_packed_integers_only_where_torch_has_kernels(capability, good, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(peers.platform, "machine", lambda: "x86_64")
    for name in ("torch int8pack", "torch int4pack:g32"):
        assert (refusal(name) is None) == good
        assert good or "AVX2 and AVX-512 kernels" in refusal(name)
    monkeypatch.setattr(peers.platform, "machine", lambda: "aarch64")
    assert refusal("torch int8pack") is None
    assert "KleidiAI's" in refusal("torch int4pack:g32")


def test_shapes_that_packed_integers_do_not_take(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(peers.platform, "machine", lambda: "x86_64")
    assert refusal("torch int8pack", Shape(64, 72)) == "its kernels take inputs in steps of 16, not 72"
    assert refusal("torch int4pack:g32", Shape(65, 64)) == "it takes neurons in steps of 16, not 65"
    assert refusal("torch int4pack:g32", Shape(64, 72)) == "it takes whole groups of 32 inputs, not 72"


def test_llama_cpp_is_refused_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    peers._ggml.cache_clear()
    reason = refusal("llama.cpp Q4_0")
    peers._ggml.cache_clear()
    assert reason == "llama-cpp-python is not installed: pip install 'tilepress[peers]'"


def test_llama_cpp_is_refused_where_it_was_built_for_less(monkeypatch):
    if (reason := refusal("llama.cpp Q4_0")) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(peers, "cpu_features", lambda: ["asimddp", "avx2", "amx_int8"])
    assert "it was built without" in refusal("llama.cpp Q4_0")
    monkeypatch.undo()
    assert refusal("llama.cpp Q4_0", Shape(64, 72)) == "it takes whole groups of 32 inputs, not 72"


def test_kleidiai_packs_the_weights_itself():
    """torch's reference keeps them as floats: four bytes for two codes."""
    if (reason := refusal("torch KleidiAI int4:g32")) is not None:
        pytest.skip(reason)
    (packed,) = peers._kleidiai_pack(torch.randn(SHAPE.neurons, SHAPE.inputs))
    assert packed.dtype == torch.uint8 and packed.nbytes < SHAPE.neurons * SHAPE.inputs
