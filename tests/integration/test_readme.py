"""The README's tables say what the commands say; tests/docs runs its commands and examples."""

from tests.scripts import ROOT, load_script

README = (ROOT / "README.md").read_text()


def test_the_tables_are_those_of_the_command_and_the_results():
    module = load_script("benchmarks/readme_table.py")
    for start, table in module.TABLES.items():
        assert module.with_table(README, start, table()) == README, "run `make readme`"
