"""docs/api.md names everything that is public."""

from tests.docs.pages import ROOT
from tests.scripts import load_script

SCRIPT = "benchmarks/api_reference.py"


def test_the_page_is_what_docstrings_say():
    module = load_script(SCRIPT)
    assert module.PAGE.read_text("utf-8") == module.reference(), "run `python benchmarks/api_reference.py`"


def test_every_public_symbol_is_there():
    page = (ROOT / "docs/api.md").read_text("utf-8")
    for package in load_script(SCRIPT).packages():
        section = page.partition(f"## {package.__name__}\n")[2].partition("\n## ")[0]
        missing = [
            name for name in package.__all__ if f"\n- `{name}`" not in section and f"\n- `{name}(" not in section
        ]
        assert section and not missing, package.__name__
