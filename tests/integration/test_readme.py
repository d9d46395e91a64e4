"""The README's tables say what the commands say; tests/docs runs its commands and examples."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def readme_table():
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "benchmarks/readme_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_command_and_the_results():
    module = readme_table()
    for start, table in module.TABLES.items():
        assert module.with_table(README, start, table()) == README, "run `make readme`"
