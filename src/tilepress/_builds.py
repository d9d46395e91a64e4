"""Whether a figure is of the kernels that are here, by the version of Tilepress that gave it."""

import re
import subprocess
from functools import lru_cache
from pathlib import Path

SOURCES = ("native", ":!native/engine", ":!native/bindings", "CMakeLists.txt")  # what kernels are built from
CHECKOUT = Path(__file__).parents[2]
_COMMIT = re.compile(r"\+g([0-9a-f]{7,40})")  # a version ends so where nothing was changed after the commit
_RELEASE = re.compile(r"\d+(\.\d+)+")


def mark(version: str) -> str:
    """What stands beside a measured figure of older kernels; "" of those that are here."""
    return "" if is_current(version) else f"older build ({version or 'not recorded'})"


@lru_cache
def is_current(version: str) -> bool:
    """In a checkout: whether the sources of kernels are still those of the version's commit. Elsewhere: whether it is
    the installed version. Builds with changes that were never committed, of commits that git does not know, and those
    that were not recorded are older."""
    commit = _commit(version)
    if commit and (CHECKOUT / ".git").exists():
        return _git("diff", "--quiet", commit, "--", *SOURCES) == 0
    from . import __version__

    return bool(version) and version == __version__


def _commit(version: str) -> str | None:
    """As git calls it."""
    if _RELEASE.fullmatch(version):
        return f"v{version}"
    match = _COMMIT.search(version)
    return match[1] if match and version.endswith(match[0]) else None


def _git(*arguments: str) -> int | None:
    try:
        return subprocess.run(["git", "-C", CHECKOUT, *arguments], capture_output=True, check=False).returncode
    except OSError:
        return None
