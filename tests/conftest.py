import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Threads of OpenMP that wait by spinning take two thirds of the time of tests that share their cores with anything
# else. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ["TILEPRESS_TUNING"] = "off"  # not what this machine's user has measured

from tilepress import _native  # functions import the rest: the process that hands out tests to others needs no torch

settings.register_profile("any machine", deadline=None)  # however busy it is
settings.load_profile("any machine")
FORCED = os.environ.get("TILEPRESS_ISA")  # the whole run is then on that instruction set; see `make test-isas`


def pytest_generate_tests(metafunc):
    """Tests run on every instruction set that this machine has, or the one that is forced; of a module that names its
    OPERATIONS, on those with a kernel of their own for one of them."""
    from tilepress import kernels

    if "isa" in metafunc.fixturenames:
        operations = getattr(metafunc.module, "OPERATIONS", kernels.registered())
        having = {isa for operation in operations for isa in kernels.registered()[operation]}
        isas = [FORCED] if FORCED else kernels.supported_isas()
        metafunc.parametrize("isa", [isa for isa in isas if isa in having], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Without the garbage collector, which would look at all of the million objects again and again. They stay: it need
    not look at them later either, half a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def isa(request):
    """An instruction set, in force for the test."""
    from tilepress import kernels

    with kernels.forced_isa(request.param):
        yield request.param


@pytest.fixture(autouse=True, scope="session")
def _interrupts():
    """What a shell starts in the background ignores interrupts, and so would the processes that tests interrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _small_caches(tmp_path_factory):
    """What is timed goes through memory of four times the last-level cache, which is gigabytes on some machines; tests
    want no times."""
    from tilepress.bench import bandwidth

    folder = tmp_path_factory.mktemp("caches")
    (folder / "index0").mkdir()
    (folder / "index0/size").write_text("1M")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bandwidth, "_CACHES", folder)
        patch.setattr(bandwidth, "_SMALLEST_BUFFER", 4 << 20)
        yield


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One for all tests that want one; `make test` installs it where it may."""
    from .report.browser import Browser, find_chromium

    path = find_chromium()
    if path is None:
        pytest.skip("no chromium here: apt-get install chromium")
    opened = Browser(path, tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def screenshots():
    """Where pages, their pictures and prints stay to be looked at; TILEPRESS_SCREENSHOTS names another folder."""
    folder = Path(os.environ.get("TILEPRESS_SCREENSHOTS") or Path(__file__).parents[1] / "build" / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pytest_report_header():
    return f"instruction set: {_native.active_isa()}{', forced' if FORCED else ''}"


def pytest_sessionstart():
    """A misspelt instruction set must not make every test fail, nor `make sanitize` pass by testing the ordinary
    build."""
    try:
        _native.active_isa()
    except ValueError as error:
        pytest.exit(str(error), returncode=3)
    if os.environ.get("TILEPRESS_SANITIZED") and b"__asan_" not in Path(_native.__file__).read_bytes():
        pytest.exit(f"{_native.__file__} was built without the address sanitizer", returncode=3)
