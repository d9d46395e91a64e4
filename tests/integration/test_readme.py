"""The README says what the commands say."""

import importlib.util
import re
from pathlib import Path

from tests.models import tiny

from tilepress.models import compress_folder

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


def readme_table():
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "benchmarks/readme_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_command_and_the_results():
    module = readme_table()
    for start, table in module.TABLES.items():
        assert module.with_table(README, start, table()) == README, "run `make readme`"


def test_the_example_of_a_model_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.save(tmp_path / "dense")
    compress_folder("dense", "small", {})
    exec(compile(EXAMPLES[0], "README.md", "exec"), {})
    assert (tmp_path / "smaller/model.safetensors").exists()


def test_the_example_of_a_layer_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[1], "README.md", "exec"), {})
    assert (tmp_path / "layer.safetensors").exists()
