"""`tilepress bench model`, as a user types it, on a tiny model and a compressed one."""

from itertools import product

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny
from transformers import DynamicCache

from tilepress.bench import kv_peers
from tilepress.models import compress_folder

SMALL = ("--prompt", 8, "--tokens", 3, "--repeats", 2)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """(compressed, dense)."""
    dense, _ = tiny.save(tmp_path_factory.mktemp("models") / "dense")
    compress_folder(str(dense), dense.parent / "packed", {"activations": {"format": "int8"}})
    return str(dense.parent / "packed"), str(dense)


def test_every_depth_and_batch_beside_peers(models, call_for_records):
    packed, dense = models
    figure = call_for_records("bench", "model", packed, dense, *SMALL, "--depth", 16, "--batch", 1, "--batch", 2)
    assert figure("read_bandwidth") > 0
    for model in models:
        for depth, batch in product((8, 16), (1, 2)):
            at = {"model": model, "depth": depth, "batch": batch}
            assert figure("prefill", model=model, prompt=depth, batch=batch) > 0 and figure("decode", **at) > 0
            assert figure("decode", **at, statistic="standard_deviation") >= 0
    ours, theirs = (figure("decode", model=model, depth=8, batch=1) for model in models)
    assert figure("decode_speedup", model=packed, depth=8, batch=1, peer=dense) == pytest.approx(ours / theirs)
    assert figure("peer_refused", peer="llama.cpp Q4_0") == f"llama.cpp reads GGUF files, and {dense} is none"


def test_a_table_for_people(models, call):
    done = call("bench", "model", models[0], *SMALL, "--base", models[1])
    assert done.returncode == 0, done.stderr
    assert "no peer here: llama.cpp Q8_0: llama.cpp reads GGUF files" in done.stdout
    assert "transformers float32" in done.stdout or "transformers bfloat16" in done.stdout
    assert " ± " in done.stdout and "read bandwidth, GB/s" in done.stdout


def test_alone(models, call_for_records):
    figure = call_for_records("bench", "model", models[0], "--no-peers", "--prompt", 8, "--tokens", 2, "--repeats", 1)
    prefill, decode = ({"model": models[0], length: 8, "batch": 1} for length in ("prompt", "depth"))
    deviation = {"statistic": "standard_deviation"}
    assert [(one.metric, one.labels) for one in figure.records] == [
        ("read_bandwidth", {}),
        ("prefill", prefill),
        ("prefill", prefill | deviation),
        ("decode", decode),
        ("decode", decode | deviation),
        ("bytes_read", decode),
        ("share_of_read_bandwidth", decode),
    ]
    assert figure("decode", **deviation) is None


def test_caches_beside_other_peoples(tmp_path, call_for_records, monkeypatch):
    """Ours, at two depths, and the peers that are here; those that are not say why."""
    monkeypatch.setattr(kv_peers.Quantized, "refusal", lambda self, config: None if self is FAKE else "gone")
    monkeypatch.setattr(kv_peers, "QUANTIZED", (FAKE, kv_peers.QUANTIZED[0]))
    dense = str(tiny.save(tmp_path / "dense", head_dim=32)[0])
    caches = ("--kv", "bfp4", "--kv", "sparse:k30,v50")
    figure = call_for_records("bench", "model", dense, *SMALL, "--depth", "16,40", *caches)
    names = ("transformers float32", "transformers bfloat16")
    stock = next(name for name in names if figure.has("decode", library=name))
    ours = [{"model": dense, "kv": "bfp4"}, {"model": dense, "kv": "sparse:k30,v50"}]
    for one in (*ours, {"library": stock}, {"library": stock, "kv": "plain"}):
        for depth in (8, 16, 40):
            assert figure("decode", **one, depth=depth, batch=1) > 0
    assert figure.has("decode_speedup", **ours[1], depth=40, batch=1, peer=f"{stock}, kv plain")
    assert figure("peer_refused", peer=f"{stock}, kv quanto int4") == "gone"
    assert figure("peer_refused", peer="llama.cpp's caches") == f"llama.cpp reads GGUF files, and {dense} is none"


class Plain(kv_peers.Quantized):
    """A cache that needs no package."""

    def make(self, config):
        return DynamicCache(config=config)


FAKE = Plain("plain", "none", "nothing", ())


def test_what_is_wrong_is_said(models, call):
    packed = models[0]
    assert_refused(call("bench", "model", packed, *SMALL, "--kv", "sparse:30"), "'sparse:30' is no cache format")
    assert_refused(call("bench", "model", packed, *SMALL, "--depth", "16,x"), "a depth is a number of tokens", "'x'")
    assert_refused(call("bench", "model", packed, *SMALL, "--depth", "0"), "a depth is a number of tokens")
    assert_refused(call("bench", "model", packed, "--prompt", 80), "takes 64 tokens, and 80 of a prompt")
    assert_refused(call("bench", "model", packed, *SMALL, "--base", packed), "is compressed: --base is the model")
    assert_refused(call("bench", "model", packed, *SMALL, "--base", "/no/such"), "'/no/such' is neither a folder")
    assert_refused(call("bench", "model", "/no/such"), "'/no/such' is neither a folder")
