"""`tilepress bench model`, as a user types it, on a tiny model and a compressed one."""

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
    found = call_for_records("bench", "model", packed, dense, *SMALL, "--depth", 16, "--batch", 1, "--batch", 2)
    assert found["read_bandwidth"] > 0
    for name in models:
        for point in ("8.batch_1", "8.batch_2", "16.batch_1", "16.batch_2"):
            assert found[f"{name}.prefill.prompt_{point}"] > 0 and found[f"{name}.decode.depth_{point}"] > 0
            assert found[f"{name}.decode.depth_{point}.sigma"] >= 0
    ratio = found[f"{packed}.decode.depth_8.batch_1"] / found[f"{dense}.decode.depth_8.batch_1"]
    assert found[f"{packed}.decode.depth_8.batch_1.over.{dense}"] == pytest.approx(ratio)
    assert found["peer.llama.cpp Q4_0.refused"] == f"llama.cpp reads GGUF files, and {dense} is none"


def test_a_table_for_people(models, call):
    done = call("bench", "model", models[0], *SMALL, "--base", models[1])
    assert done.returncode == 0, done.stderr
    assert "no peer here: llama.cpp Q8_0: llama.cpp reads GGUF files" in done.stdout
    assert "transformers float32" in done.stdout or "transformers bfloat16" in done.stdout
    assert " ± " in done.stdout and "read bandwidth, GB/s" in done.stdout


def test_alone(models, call_for_records):
    found = call_for_records("bench", "model", models[0], "--no-peers", "--prompt", 8, "--tokens", 2, "--repeats", 1)
    assert {name.removeprefix(models[0]) for name in found} == {
        "read_bandwidth",
        ".prefill.prompt_8.batch_1",
        ".prefill.prompt_8.batch_1.sigma",
        ".decode.depth_8.batch_1",
        ".decode.depth_8.batch_1.sigma",
        ".decode.depth_8.batch_1.bytes_read",
        ".decode.depth_8.batch_1.share_of_read_bandwidth",
    }
    assert found[f"{models[0]}.decode.depth_8.batch_1.sigma"] is None


def test_caches_beside_other_peoples(tmp_path, call_for_records, monkeypatch):
    """Ours, at two depths, and the peers that are here; those that are not say why."""
    monkeypatch.setattr(kv_peers.Quantized, "refusal", lambda self, config: None if self is FAKE else "gone")
    monkeypatch.setattr(kv_peers, "QUANTIZED", (FAKE, kv_peers.QUANTIZED[0]))
    dense = str(tiny.save(tmp_path / "dense", head_dim=32)[0])
    caches = ("--kv", "bfp4", "--kv", "sparse:k30,v50")
    found = call_for_records("bench", "model", dense, *SMALL, "--depth", "16,40", *caches)
    plain = next(name for name in ("float32", "bfloat16") if f"transformers {name}.decode.depth_8.batch_1" in found)
    ours = [f"{dense}, kv bfp4", f"{dense}, kv sparse:k30,v50"]
    for name in (*ours, f"transformers {plain}", f"transformers {plain}, kv plain"):
        for depth in (8, 16, 40):
            assert found[f"{name}.decode.depth_{depth}.batch_1"] > 0
    assert f"{ours[1]}.decode.depth_40.batch_1.over.transformers {plain}, kv plain" in found
    assert found[f"peer.transformers {plain}, kv quanto int4.refused"] == "gone"
    assert found["peer.llama.cpp's caches.refused"] == f"llama.cpp reads GGUF files, and {dense} is none"


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
