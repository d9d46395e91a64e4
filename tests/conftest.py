import os
from pathlib import Path

import pytest

from tilepress import _native, kernels


@pytest.fixture(params=kernels.supported_isas())
def isa(request, monkeypatch):
    """Each instruction set that this machine has, in force for the test."""
    monkeypatch.setenv("TILEPRESS_ISA", request.param)
    return request.param


@pytest.fixture(autouse=True, scope="session")
def _no_forced_isa():
    """Tests choose for themselves; what the user's shell forces must not change what they check."""
    os.environ.pop("TILEPRESS_ISA", None)


def pytest_sessionstart():
    """`make sanitize` must not pass by testing the ordinary build."""
    if os.environ.get("TILEPRESS_SANITIZED") and b"__asan_" not in Path(_native.__file__).read_bytes():
        pytest.exit(f"{_native.__file__} was built without the address sanitizer", returncode=3)
