"""What the pages' commands find beside them: small stand-ins for what a reader has."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.cli import conftest as command_line
from tests.docs.pages import ROOT
from tests.evaluate.tiny import SIZES, tiny_tokenizer
from tests.serve.conftest import served
from tilepress import tiles
from tilepress.models import texts

little_tuning, call_here = command_line.little_tuning, command_line.call
CONFIG = {
    **SIZES,
    "num_attention_heads": 2,  # of 32 channels, as packed caches want them
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}
TEXTS = ("wikitext2-test.txt", "wikitext2-train.txt", "ptb-valid.txt")
SERVER = "http://127.0.0.1:8000"  # the one that pages speak of
GRID = "kind = 'simulate deca'\nfixed.parameters = 28672\ngrid.width = [8, 32]"
QUESTION = {"goal": "Boil an egg", "sol1": "in water", "sol2": "in a bag", "label": 0}


@pytest.fixture(scope="session")
def standins(tmp_path_factory):
    """A folder with a random model of two small layers called `smollm2-135m` (a folder goes before the model of that
    name), the same as `dense` and its configuration, a packed layer, floats, the saved results, and texts."""
    folder = tmp_path_factory.mktemp("standins")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**CONFIG)).eval().save_pretrained(folder / "smollm2-135m")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer.save_pretrained(folder / "smollm2-135m")
    shutil.copytree(folder / "smollm2-135m", folder / "dense")
    shutil.copy(folder / "dense/config.json", folder)
    np.save(folder / "activations.npy", np.random.default_rng(0).standard_normal((4, 64), np.float32))
    tiles.save(folder / "layer.safetensors", {"q_proj": tiles.pack(torch.randn(1024, 256), "bf8", sparse=True)})
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    (folder / "grid.toml").write_text(GRID)
    (folder / "data").mkdir()
    for name in TEXTS:
        (folder / "data" / name).write_text(texts.read_text("pydoc")[:20_000])
    (folder / "data/piqa-valid.jsonl").write_text("\n".join([json.dumps(QUESTION)] * 4))
    return folder


@pytest.fixture
def beside(standins, little_tuning, tmp_path, monkeypatch):
    """A folder of its own to run commands in, the stand-ins in it."""
    for path in standins.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEPRESS_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture(scope="session")
def server(standins):
    """Where a server of `smollm2-135m` is."""
    with served({"smollm2-135m": str(standins / "smollm2-135m")}) as running:
        yield running.ready().url


@pytest.fixture
def call(call_here, request):
    """As tests of the command line have it, with a server of ours in the place of SERVER."""

    def run(*arguments, **environment):
        if SERVER in arguments:
            url = request.getfixturevalue("server")
            arguments = [url if one == SERVER else one for one in arguments]
        return call_here(*arguments, **environment)

    return run
