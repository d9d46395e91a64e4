"""A wheel built from this tree works installed somewhere else, with the source tree out of sight."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USE = """
import pathlib, sys, torch
import tilepress
assert pathlib.Path(tilepress.__file__).is_relative_to(sys.argv[1]), tilepress.__file__
from tilepress import tiles
weight = torch.randn(32, 64)
path = pathlib.Path(sys.argv[1]) / "w.safetensors"
tiles.save(path, {"w": tiles.pack(weight, "bf16", sparse=True)})
assert torch.equal(tiles.unpack(tiles.load(path)["w"]), weight.bfloat16().float())
print("works")
"""


def run(*command, cwd):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_a_wheel_works_outside_the_source_tree(tmp_path):
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT]
    if not _can_build():
        build.remove("--no-build-isolation")
    done = run(*build, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("tilepress-*.whl")
    done = run("-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "there", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # -S would hide torch; a path in front of site-packages wins over the editable installation's hook.
    script = "import sys; sys.meta_path = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
    script += f"sys.path.insert(0, {str(tmp_path / 'there')!r})\n" + USE
    done = run("-c", script, tmp_path / "there", cwd=tmp_path)
    assert done.stdout.strip() == "works", done.stderr


def _can_build() -> bool:
    return all(importlib.util.find_spec(name) for name in ("nanobind", "scikit_build_core", "setuptools_scm"))
