import os

import pytest

from tilepress import kernels


@pytest.fixture(params=kernels.supported_isas())
def isa(request, monkeypatch):
    """Each instruction set that this machine has, in force for the test."""
    monkeypatch.setenv("TILEPRESS_ISA", request.param)
    return request.param


@pytest.fixture(autouse=True, scope="session")
def _no_forced_isa():
    """Tests choose for themselves; what the user's shell forces must not change what they check."""
    os.environ.pop("TILEPRESS_ISA", None)
