"""docs/api.md names everything that is public."""

import importlib.util

from tests.docs.pages import ROOT


def script():
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "benchmarks/api_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_docstrings_say():
    module = script()
    assert module.PAGE.read_text("utf-8") == module.reference(), "run `python benchmarks/api_reference.py`"


def test_every_public_symbol_is_there():
    page = (ROOT / "docs/api.md").read_text("utf-8")
    for package in script().packages():
        section = page.partition(f"## {package.__name__}\n")[2].partition("\n## ")[0]
        missing = [
            name for name in package.__all__ if f"\n- `{name}`" not in section and f"\n- `{name}(" not in section
        ]
        assert section and not missing, package.__name__
