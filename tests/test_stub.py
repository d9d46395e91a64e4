"""_native.pyi says what the compiled module has."""

import pytest

from tests.scripts import load_script


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("nanobind")
    return load_script("native/bindings/stub.py")


def test_the_stub_is_that_of_the_compiled_module(script):
    assert script.STUB.read_text("utf-8") == script.stub(), "run `make stubs`"


def test_a_pattern_for_nothing_is_an_error(script, tmp_path, monkeypatch):
    (tmp_path / "stub.pat").write_text("_native.gone$:\n    def gone() -> None: ...\n")
    monkeypatch.setattr(script, "HERE", tmp_path)
    with pytest.raises(SystemExit, match=r"nothing is called _native\.gone"):
        script.stub()
