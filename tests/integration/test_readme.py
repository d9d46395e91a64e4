"""The tables of README and docs say what the commands say; tests/docs runs its commands and examples."""

from tests.scripts import load_script


def test_the_tables_are_those_of_the_command_and_the_results():
    module = load_script("benchmarks/readme_table.py")
    pages = [page.read_text() for page in module.PAGES]
    for start, table in module.TABLES.items():
        [page] = [text for text in pages if start in text]
        assert module.with_table(page, start, table()) == page, "run `make readme`"
