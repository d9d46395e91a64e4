"""The order of the two streams: a package imports only what stands before it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src/tilepress"

# Earlier packages of its own stream that a package may import. Everything may use `records`,
# `evidence` and private modules, the compiled one among them.
SHARED = ["formats", "tiles"]
RUNTIME = ["compression", "kernels", "nn", "models", "engine", "evaluate", "bench", "serve", "vllm_plugin", "cluster"]
WEIGHTS = [*SHARED, *RUNTIME]
HARDWARE = [*SHARED, "hardware", "roofsurface", "simulate", "rtl"]
BOTH = {*WEIGHTS, *HARDWARE, "sweep"}  # what joins the streams may import
EVERYWHERE = {"records", "evidence"}


def allowed(package: str) -> set[str]:
    if package == "cli":
        return {*BOTH, "paper", "report", "cli"}
    if package in ("paper", "report"):
        return {*BOTH, "paper", package}
    if package == "sweep":
        return BOTH
    if package in SHARED:
        return set(SHARED[: SHARED.index(package) + 1])
    stream = WEIGHTS if package in WEIGHTS else HARDWARE
    return set(stream[: stream.index(package) + 1])


def imported_packages(path: Path) -> set[str]:
    """Top-level parts of tilepress that a file imports, wherever in the file."""
    here = path.relative_to(SOURCE).parts[:-1]
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(here[: len(here) - node.level + 1]) + (node.module.split(".") if node.module else [])
            packages |= {base[0]} if base else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tilepress":
            rest = node.module.split(".")[1:]
            packages |= {rest[0]} if rest else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("tilepress.")}
    return packages


FILES = sorted(path for path in SOURCE.rglob("*.py") if len(path.relative_to(SOURCE).parts) > 1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_imports_only_what_stands_before_it(path):
    package = path.relative_to(SOURCE).parts[0]
    names = {name for name in imported_packages(path) if not name.startswith("_")} - EVERYWHERE
    assert names <= allowed(package), f"{package} may not import {sorted(names - allowed(package))}"


def test_compression_knows_no_byte_layout():
    for path in (SOURCE / "compression").glob("*.py"):
        assert "tiles" not in imported_packages(path)


def test_the_check_sees_imports_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats/x.py").write_text(
        "from ..nn import a\nfrom .. import bench\nimport tilepress.cli.app\n"
        "def f():\n    from tilepress.models import b\n    from tilepress import paper\n    from .floats import c\n"
    )
    packages = imported_packages(tmp_path / "formats/x.py")
    assert packages == {"nn", "bench", "cli", "models", "paper", "formats"}
