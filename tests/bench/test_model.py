"""Whole models are timed as they are used: every token of every contestant, on tiny random models."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from tests.models import tiny
from tests.models.gguf_files import write_gguf

from tilepress.bench import kv_peers, llama_cpp_model, model, model_peers
from tilepress.bench.llama_cpp_model import LlamaCppWriter
from tilepress.bench.model import Entrant, Point, Rate, Settings, TransformersWriter, bytes_read, measure
from tilepress.bench.model_peers import WeightOnlyLinear, base_of, entrant, peers, vocabulary
from tilepress.bench.peers import PEERS, TorchPeer
from tilepress.models import ModelUnavailableError, compress_folder, load_model

SMALL = Settings(prompt=9, tokens=4, repeats=2)
WEIGHT_ONLY = [peer for peer in PEERS if isinstance(peer, TorchPeer) and peer.operator in model_peers.WEIGHT_ONLY]


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return str(tiny.save(tmp_path_factory.mktemp("models") / "dense")[0])


@pytest.fixture(scope="module")
def packed(dense):
    out = f"{dense}-packed"
    compress_folder(dense, out, {"weights": {"lm_head": "compress"}, "activations": {"format": "int8"}})
    return out


class Metronome:
    """A writer whose prompt takes 2 s and whose tokens take 0.5 s each, at first, and 0.25 s the second time."""

    bytes_read = 1000

    def __init__(self, log, name):
        self.log, self.name, self.runs = log, name, 0

    def write(self, prompt, tokens):
        self.log.append((self.name, tuple(prompt.shape), tokens))
        self.runs += 1
        beat = 0.5 if self.runs <= 2 else 0.25
        return [10.0, *(12 + beat * number for number in range(tokens))]


def race(settings, monkeypatch, memory=10**12):
    log = []
    monkeypatch.setattr(model, "free_memory", lambda: memory)
    monkeypatch.setattr(model, "read_bandwidth", lambda threads: 1e6)
    entrants = [Entrant(name, 100, lambda _, name=name: Metronome(log, name), is_peer=name == "b") for name in "ab"]
    seen = []
    result = measure(entrants, settings, 96, seen.append)
    assert len(seen) == model.steps(entrants, settings)
    return result, log


def test_rates_are_of_tokens_over_time(monkeypatch):
    result, _ = race(Settings(prompt=8, tokens=5, repeats=2, batches=(3,)), monkeypatch)
    ours, peer = result.speeds
    assert ours.point == Point(depth=8, batch=3) and not ours.is_peer and peer.is_peer
    assert ours.prefill == Rate(3 * 8 / 2, 0.0)
    assert ours.decode.mean == pytest.approx((3 / 0.5 + 3 / 0.25) / 2)  # the run that warms up is not among them
    assert ours.decode.sigma == pytest.approx(6 / 2**0.5)
    assert ours.share_of_bandwidth == pytest.approx(1000 * 3 / 1e6)  # three steps a second, whatever the batch
    assert result.over(ours) == {"b": (1.0, 1.0)}


def test_contestants_take_turns_where_memory_holds_them_all(monkeypatch):
    settings = Settings(prompt=8, tokens=5, repeats=2, depths=(8, 16))
    _, log = race(settings, monkeypatch)
    assert [name for name, *_ in log] == ["a", "b"] * 6
    assert [shape for _, shape, _ in log] == [(1, 8)] * 6 + [(1, 16)] * 6
    assert [tokens for *_, tokens in log] == [2, 2, 5, 5, 5, 5] * 2
    result, log = race(settings, monkeypatch, memory=150)
    assert [name for name, *_ in log] == ["a"] * 6 + ["b"] * 6
    assert [(speed.name, speed.point.depth) for speed in result.speeds] == [("a", 8), ("b", 8), ("a", 16), ("b", 16)]


def test_one_repeat_has_no_deviation():
    assert Rate.of([2.0]).mean == 2.0 and Rate.of([2.0]).sigma != Rate.of([2.0]).sigma


def test_a_peer_that_cannot_load_is_refused_and_one_of_ours_is_an_error():
    def fail(threads):
        raise RuntimeError("no memory for it")

    assert measure([Entrant("peer", 0, fail)], SMALL, 96).refused == {"peer": "no memory for it"}
    with pytest.raises(RuntimeError, match="no memory for it"):
        measure([Entrant("ours", 0, fail, is_peer=False)], SMALL, 96)


@pytest.mark.parametrize("batch", [1, 3])
def test_generate_is_watched_token_by_token(dense, batch, monkeypatch):
    writer = TransformersWriter(load_model(dense).model)
    produced = []
    generate = writer.model.generate
    monkeypatch.setattr(writer.model, "generate", lambda *a, **o: produced.append(generate(*a, **o)))
    prompt = torch.randint(3, 96, (batch, 9), generator=torch.Generator().manual_seed(0))
    times = writer.write(prompt, 6)
    assert len(times) == 7 and times == sorted(times)
    assert produced[0].shape == (batch, 15) and torch.equal(produced[0][:, :9], prompt)


def test_bytes_read_are_those_of_a_step(dense, packed):
    tied = load_model(dense, dtype=torch.float32).model
    everything = sum(p.numel() for p in tied.parameters()) * 4
    assert everything <= bytes_read(tied) < everything + 1000  # and the frequencies of rotation
    small = load_model(packed).model  # its output layer is packed: of the embedding, a row is read
    layers = sum(layer.matrix.nbytes for layer in small.modules() if hasattr(layer, "matrix"))
    assert layers < bytes_read(small) < 0.6 * bytes_read(tied)


def test_models_as_they_are_compressed_and_not(dense, packed):
    entrants = [entrant(packed, SMALL, None), entrant(dense, SMALL, torch.float32)]
    assert [one.is_peer for one in entrants] == [False, True]
    assert entrants[1].nbytes == sum(p.numel() for p in load_model(dense).model.parameters()) * 4
    result = measure(entrants, SMALL, vocabulary(packed))
    assert [speed.name for speed in result.speeds] == [packed, dense] and not result.refused
    assert all(speed.decode.mean > 0 and speed.prefill.mean > 0 for speed in result.speeds)


def test_prompts_longer_than_the_model_takes_are_refused(dense):
    with pytest.raises(ValueError, match="takes 64 tokens, and 62 of a prompt and 4 more were asked for"):
        entrant(dense, Settings(prompt=9, depths=(62,), tokens=4), None)


@pytest.mark.parametrize("peer", WEIGHT_ONLY, ids=lambda peer: peer.name)
def test_weight_only_layers_compute_what_they_replace(peer):
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 32)
    if (reason := model_peers._refusal(peer, layer)) is not None:
        pytest.skip(reason)
    x = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))
    expected = layer(x).detach()
    y = WeightOnlyLinear(layer, peer)(x).detach()
    assert y.shape == expected.shape and y.dtype == x.dtype
    assert float((y - expected).abs().max()) < 0.15 * float(expected.abs().max())


def test_peers_run_the_base_or_say_why_not(dense):
    entrants, refused = peers(dense)
    assert entrants[0].name.startswith("transformers ") and all(one.is_peer for one in entrants)
    names = {one.name for one in entrants} | set(refused)
    assert names >= {*(peer.name for peer in WEIGHT_ONLY), "llama.cpp Q4_0", "llama.cpp Q8_0"}
    assert refused["llama.cpp Q4_0"] == f"llama.cpp reads GGUF files, and {dense} is none"
    result = measure(entrants, SMALL, vocabulary(dense))
    assert [speed.name for speed in result.speeds] == [one.name for one in entrants] and not result.refused
    assert "transformers" not in "".join(one.name for one in peers(dense, is_entered=True)[0])


def test_a_peer_keeps_layers_that_it_does_not_take_and_is_refused_if_it_takes_none(dense, monkeypatch):
    (int8,) = (peer for peer in WEIGHT_ONLY if peer.name == "torch int8pack")
    fussy = TorchPeer(int8.name, int8.operator, int8.dtype, lambda shape: "64 only", int8.pack, int8.multiply)
    monkeypatch.setattr(model_peers, "PEERS", [PEERS[1], fussy])
    assert peers(dense)[1]["torch int8pack"] == "64 only"
    some = TorchPeer(
        int8.name,
        int8.operator,
        int8.dtype,
        lambda shape: None if shape.inputs == 64 else "64 only",
        int8.pack,
        int8.multiply,
    )
    changed = load_model(dense).model
    model_peers._replace(some, changed)
    kinds = {name: type(layer) for name, layer in changed.named_modules() if name.endswith("_proj")}
    assert kinds["model.layers.0.mlp.up_proj"] is WeightOnlyLinear
    assert kinds["model.layers.0.mlp.down_proj"] is torch.nn.Linear


def test_the_base_is_the_dense_one_or_what_a_folder_says(dense, packed, tmp_path):
    assert base_of([packed, dense]) == dense
    config = json.loads(Path(packed, "config.json").read_text())
    config["quantization_config"]["source"] = "another"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert base_of([str(tmp_path)]) == "another"


def test_without_a_base_there_are_no_peers(packed, monkeypatch):
    (reason,) = peers(None)[1].values()
    assert reason == "it is not known what was compressed: name it with --base"

    def gone(name, **_):
        raise ModelUnavailableError(f"{name} is gone")

    monkeypatch.setattr(model_peers, "model_folder", gone)
    entrants, refused = peers("somewhere")
    assert not entrants and list(refused.values()) == ["somewhere is gone"]
    monkeypatch.undo()
    with pytest.raises(ValueError, match="is compressed: --base is the model as it was before"):
        peers(packed)


def test_llama_cpp_is_refused_where_it_does_not_load(monkeypatch):
    def broken():
        raise ImportError("no module named diskcache")

    monkeypatch.setattr(llama_cpp_model.LlamaCppPeer, "refusal", lambda self, shape: None)
    monkeypatch.setattr(llama_cpp_model, "_library", broken)
    assert llama_cpp_model.refusal() == "llama-cpp-python does not load: no module named diskcache"


@pytest.fixture
def toy_gguf(tmp_path, monkeypatch):
    pytest.importorskip("accelerate")
    if (reason := llama_cpp_model.refusal()) is not None:
        pytest.skip(reason)
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "toy.gguf")
    return tmp_path / "toy.gguf"


@pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows
@pytest.mark.parametrize("batch", [1, 3])
def test_llama_cpp_writes_what_transformers_writes(toy_gguf, batch):
    prompt = torch.randint(8, (batch, 7), generator=torch.Generator().manual_seed(0))
    tokens, times = LlamaCppWriter(toy_gguf, threads=2).continued(prompt, 6)
    reference = load_model(str(toy_gguf)).model
    for _ in range(6):
        following = reference(prompt).logits[:, -1:].argmax(-1)
        prompt = torch.cat([prompt, following], dim=1)
    assert torch.equal(tokens, prompt[:, 7:])
    assert len(times) == 7 and times == sorted(times)


@pytest.mark.filterwarnings("ignore")
def test_llama_cpp_gets_the_same_weights_in_its_own_formats(toy_gguf):
    entrants = [one for one in peers(str(toy_gguf))[0] if one.pool == "ggml"]
    assert [one.name for one in entrants] == ["llama.cpp Q4_0", "llama.cpp Q8_0"]
    four, eight = (one.load(1).bytes_read for one in entrants)
    weights = 2 * 8 * 32 + 4 * 32 * 32 + 3 * 32 * 64
    assert four < eight < 1.1 * weights * 34 / 32  # 34 bytes for 32 weights, and the norms
    made = llama_cpp_model.requantized(toy_gguf, "Q4_0")
    before = made.stat().st_mtime_ns
    assert llama_cpp_model.requantized(toy_gguf, "Q4_0").stat().st_mtime_ns == before
    assert sorted(path.name for path in made.parent.glob("*.gguf")) == ["Q4_0.gguf", "Q8_0.gguf"]


@pytest.mark.filterwarnings("ignore")
def test_llama_cpp_has_small_caches_for_heads_that_its_groups_divide(toy_gguf):
    """The toy's heads of 16 channels are not among them: that is a refusal, and no crash in the middle of a race."""
    entrants, refused = peers(str(toy_gguf), caches=True)
    small = [one for one in entrants if ", kv q" in one.name and one.pool == "ggml"]
    assert [one.name for one in small] == ["llama.cpp Q4_0, kv q8_0", "llama.cpp Q4_0, kv q4_0"]
    for one in small:
        with pytest.raises(RuntimeError, match=r"llama.cpp makes no cache in q\d_0 for this model"):
            one.load(1)
    assert not any("torch int" in one.name for one in entrants)  # layers are not what is asked about
    quantized = [reason for name, reason in refused.items() if ", kv " in name]
    assert all("is not installed" in reason or "refuses" in reason for reason in quantized)


def test_quantized_caches_that_cannot_be_say_why():
    config = tiny.make("llama").config
    wrong = kv_peers.Quantized("nothing int4", "nothing", "nothing", (("nbits", 4),))
    assert wrong.refusal(config).startswith("transformers refuses it: ")
    missing = kv_peers.Quantized("gone", "gone", "a-package", ())
    object.__setattr__(missing, "make", lambda config: importlib.import_module("no_such_package"))
    assert missing.refusal(config) == "it needs a-package, which is not installed"
