"""Where the links of a page lead on the site: to its page there, to the file in the repository, or nowhere.

Pages are written for the repository: a link is relative to its own file. The site has the pages of `docs`, those of
FROM_ROOT under other names, and a page for each notebook. Everything else is in the repository alone.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FROM_ROOT = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "native/README.md": "native.md",
}
_SOURCES = {page: path for path, page in FROM_ROOT.items()}
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.S | re.M)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def source_of(page: str) -> str:
    """The path in the repository of a page of the site."""
    return _SOURCES.get(page, f"docs/{page}")


def page_of(path: str) -> str | None:
    """The page, image or file of the site that a path of the repository is; None where the site has none."""
    if path in FROM_ROOT:
        return FROM_ROOT[path]
    inside = path.removeprefix("docs/")
    if inside == path or not (ROOT / path).is_file():
        return None
    return f"{inside.removesuffix('.ipynb')}.md" if inside.endswith(".ipynb") else inside


def rewrite(markdown: str, page: str, repository: str | None) -> str:
    """`markdown`, the text of `page`, with links as the site needs them; code stays as it is. `repository`: the address
    that links to other files begin with; without one they become plain text. What is nowhere stays, for mkdocs to
    refuse."""

    def link(match: re.Match[str]) -> str:
        mark, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), target))
        if inside := page_of(path):
            text = text if mark else text.removesuffix(".md")
            return f"{mark}[{text}]({posixpath.relpath(inside, posixpath.dirname(page) or '.')}{anchor})"
        if not (ROOT / path).exists():
            return match[0]
        return f"[{text}]({_address(repository, path)}{anchor})" if repository else text

    return _outside_code(markdown, lambda text: _LINK.sub(link, text))


def _address(repository: str, path: str) -> str:
    return f"{repository.rstrip('/')}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Links have code in their texts, so code is taken out before and put back after."""
    code: list[str] = []

    def take(match: re.Match[str]) -> str:
        code.append(match[0])
        return f"\0{len(code) - 1}\0"

    changed = change(_CODE.sub(take, markdown))
    return re.sub("\0(\\d+)\0", lambda match: code[int(match[1])], changed)


def indent_lists(markdown: str) -> str:
    """Nested lists with the four blanks that Python-Markdown wants, where GitHub takes two."""
    return _outside_code(markdown, lambda text: re.sub(r"^  (?=- )", "    ", text, flags=re.M))


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)
