"""The docs site: every page is in its navigation, links lead somewhere, and nothing comes from the network."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.scripts import load_script

links = load_script("docs/site/links.py")
notebooks = load_script("docs/site/notebooks.py")
REPOSITORY = "https://example.org/tilepress"
FROM_NETWORK = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
)


class Settings(yaml.SafeLoader):
    """mkdocs.yml, with names of environment variables where it has `!ENV`."""


Settings.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node))


def settings():
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Settings)


def pages_of(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from pages_of(value) if isinstance(value, list) else [value]


def test_the_navigation_has_every_page_once():
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb"), *map(ROOT.joinpath, links.FROM_ROOT)]
    pages = {links.page_of(path.relative_to(ROOT).as_posix()) for path in files}
    assert sorted(pages_of(settings()["nav"])) == sorted(pages)


def test_the_navigation_has_the_order_of_the_index():
    shown = list(pages_of(settings()["nav"]))
    targets = re.findall(r"^\|.*\]\((?!https:)([^)#]+)\)", (ROOT / "docs/README.md").read_text(), re.M)
    index = [links.page_of(os.path.normpath(f"docs/{target}")) for target in targets]
    listed = [page for page in dict.fromkeys(index) if page in shown]
    assert len(listed) > 25
    assert [page for page in shown if page in listed] == listed


@pytest.mark.parametrize(
    "page, text, expected",
    [
        ("contents.md", "[SECURITY.md](../SECURITY.md)", "[SECURITY](security.md)"),
        ("contents.md", "[a](notebooks/choose-a-format.ipynb)", "[a](notebooks/choose-a-format.md)"),
        ("index.md", "[a](docs/quality.md#measured)", "[a](quality.md#measured)"),
        ("index.md", "![a](docs/images/report.png)", "![a](images/report.png)"),
        ("index.md", "[all](docs/README.md)", "[all](contents.md)"),
        ("lab/README.md", "[`n`](../numerics.md)", "[`n`](../numerics.md)"),
        ("notebooks/choose-a-format.md", "[a](../records.md)", "[a](../records.md)"),
        ("measured.md", "[a](../benchmarks/results)", f"[a]({REPOSITORY}/tree/main/benchmarks/results)"),
        ("deca.md", "[a](../pyproject.toml)", f"[a]({REPOSITORY}/blob/main/pyproject.toml)"),
        ("deca.md", "[a](#here) [b](https://example.org/b.md)", "[a](#here) [b](https://example.org/b.md)"),
        ("deca.md", "[a](nowhere.md)", "[a](nowhere.md)"),  # for mkdocs to refuse
        ("deca.md", "```md\n[a](../SECURITY.md)\n```", "```md\n[a](../SECURITY.md)\n```"),
    ],
)
def test_links_are_as_the_site_needs_them(page, text, expected):
    assert links.rewrite(text, page, REPOSITORY) == expected


def test_without_a_repository_links_to_its_files_are_text():
    assert links.rewrite("[results](../benchmarks/results) in [a](records.md)", "deca.md", None) == (
        "results in [a](records.md)"
    )


def test_nested_lists_are_indented_but_code_is_not():
    assert links.indent_lists("- a\n  - b\n```\n  - c\n```") == "- a\n    - b\n```\n  - c\n```"


def test_a_notebook_becomes_a_page():
    stream = {"output_type": "stream", "name": "stdout", "text": ["2\n"]}
    shown = {"output_type": "execute_result", "data": {"text/plain": "3"}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        {"cell_type": "code", "source": "print(2)\n3", "outputs": [stream, shown]},
    ]
    page = notebooks.to_markdown({"cells": cells}, "a.ipynb")
    assert page.startswith("# Title\n") and "](a.ipynb)" in page and "\n\nText.\n\n" in page
    assert page.endswith("```python\nprint(2)\n3\n```\n\n```text\n2\n```\n\n```text\n3\n```")


def test_a_notebook_with_an_error_is_refused():
    error = {"output_type": "error", "ename": "KeyError", "evalue": "'a'"}
    cells = [{"cell_type": "code", "source": "{}['a']", "outputs": [error]}]
    with pytest.raises(ValueError, match="a notebook has an error in it: KeyError: 'a'"):
        notebooks.to_markdown({"cells": cells}, "a.ipynb")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built as `make docs` builds it."""
    if not find_spec("material"):
        pytest.skip("mkdocs-material is not installed: `make docs` does that")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name not in ("REPOSITORY_URL", "SITE_URL")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_it_builds_with_every_page_and_no_broken_link(site):
    for page in pages_of(settings()["nav"]):
        name = re.sub(r"README\.md$", "index.md", page).removesuffix(".md")
        assert (site / f"{name}.html").is_file(), page
    assert "search_index.json" in {path.name for path in site.rglob("*")}
    assert not list(site.rglob("*.py"))


@pytest.mark.slow
def test_nothing_comes_from_the_network(site):
    assert FROM_NETWORK.search('<script async src="https://example.org/a.js">')
    for path in site.rglob("*.html"):
        assert not FROM_NETWORK.search(path.read_text("utf-8")), path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"""url\(["']?(?:https?:)?//|@import""", path.read_text("utf-8")), path.name
