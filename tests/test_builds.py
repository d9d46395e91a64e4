"""Which figures are of the kernels that are here."""

import subprocess

import pytest

from tilepress import __version__, _builds
from tilepress._builds import is_current, mark


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """One with a commit of kernels, that of a release, and one of other files; `.git(…)` runs git there."""

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        git("add", "-A")
        git("commit", "-qm", name)
        return f"0.2.0.dev1+g{git('rev-parse', '--short=9', 'HEAD')}"

    git("init", "-q")
    monkeypatch.setattr(_builds, "CHECKOUT", tmp_path)
    is_current.cache_clear()
    yield commit, git
    is_current.cache_clear()


def test_in_a_checkout_the_sources_of_kernels_decide(checkout):
    commit, git = checkout
    first = commit("native/a.cc", "1")
    git("tag", "v0.1.0")
    second = commit("native/a.cc", "2")
    third = commit("README.md", "words")
    assert [is_current(one) for one in (first, "0.1.0", second, third)] == [False, False, True, True]
    commit("native/a.cc", "1")
    is_current.cache_clear()
    assert [is_current(one) for one in (first, "0.1.0", second, third)] == [True, True, False, False]


def test_what_cannot_be_told_is_older(checkout):
    commit, _ = checkout
    version = commit("native/a.cc", "1")
    assert not is_current("") and not is_current("0.2.0.dev1+g0123456789") and not is_current("9.9.9")
    assert not is_current(f"{version}.d20261118"), "built with changes that were never committed"


def test_without_git_the_version_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(_builds, "CHECKOUT", tmp_path)
    is_current.cache_clear()
    assert is_current(__version__) and not is_current("0.1.0")
    assert (
        mark(__version__) == "" and mark("0.1.0") == "older build (0.1.0)" and mark("") == "older build (not recorded)"
    )
    is_current.cache_clear()
