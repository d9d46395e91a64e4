import os
from pathlib import Path

import pytest

from .browser import Browser, find_chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One for all tests that want one; `make test` installs it where it may."""
    path = find_chromium()
    if path is None:
        pytest.skip("no chromium here: apt-get install chromium")
    opened = Browser(path, tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def screenshots():
    """Where pages, their pictures and prints stay to be looked at; TILEPRESS_SCREENSHOTS names another folder."""
    folder = Path(os.environ.get("TILEPRESS_SCREENSHOTS") or Path(__file__).parents[2] / "build" / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
