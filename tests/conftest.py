import os
import signal
from pathlib import Path

import pytest

from tilepress import _native, kernels
from tilepress.bench import bandwidth


def pytest_generate_tests(metafunc):
    """Tests run on every instruction set that this machine has; of a module that names its OPERATIONS, on those with a
    kernel of their own for one of them."""
    if "isa" in metafunc.fixturenames:
        operations = getattr(metafunc.module, "OPERATIONS", kernels.registered())
        having = {isa for operation in operations for isa in kernels.registered()[operation]}
        metafunc.parametrize("isa", [isa for isa in kernels.supported_isas() if isa in having], indirect=True)


@pytest.fixture
def isa(request):
    """An instruction set, in force for the test."""
    with kernels.forced_isa(request.param):
        yield request.param


@pytest.fixture(autouse=True, scope="session")
def _no_forced_isa():
    """Tests choose for themselves; what the user's shell forces must not change what they check."""
    os.environ.pop("TILEPRESS_ISA", None)


@pytest.fixture(autouse=True, scope="session")
def _interrupts():
    """What a shell starts in the background ignores interrupts, and so would the processes that tests interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _small_caches(tmp_path_factory):
    """What is timed goes through memory of four times the last-level cache, which is gigabytes on some machines; tests
    want no times."""
    folder = tmp_path_factory.mktemp("caches")
    (folder / "index0").mkdir()
    (folder / "index0/size").write_text("1M")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bandwidth, "_CACHES", folder)
        patch.setattr(bandwidth, "_SMALLEST_BUFFER", 4 << 20)
        yield


def pytest_sessionstart():
    """`make sanitize` must not pass by testing the ordinary build."""
    if os.environ.get("TILEPRESS_SANITIZED") and b"__asan_" not in Path(_native.__file__).read_bytes():
        pytest.exit(f"{_native.__file__} was built without the address sanitizer", returncode=3)
