"""A wheel built from this tree works in an environment of its own, without the source tree and without a compiler."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.models import tiny

ROOT = Path(__file__).parents[2]
USE = """
import pathlib, sys, torch
import tilepress
assert pathlib.Path(tilepress.__file__).is_relative_to(sys.prefix), tilepress.__file__
from tilepress import tiles
weight = torch.randn(32, 64)
path = pathlib.Path(sys.argv[1]) / "w.safetensors"
tiles.save(path, {"w": tiles.pack(weight, "bf16", sparse=True)})
assert torch.equal(tiles.unpack(tiles.load(path)["w"]), weight.bfloat16().float())
print("works")
"""


def run(*command, cwd, **environment):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd, env=os.environ | environment)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One with the wheel, and with what this one has but for its tilepress, whose hook is not read from there."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip"]
    isolated = ["--no-build-isolation"] if _can_build() else []
    done = run(*pip, "wheel", "--quiet", "--no-deps", *isolated, "--wheel-dir", folder, ROOT, cwd=folder)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("tilepress-*.whl")
    venv.create(folder / "venv")
    (packages,) = (folder / "venv/lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = run(*pip, "install", "--quiet", "--no-deps", "--target", packages, wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "venv"


@pytest.mark.slow
def test_a_wheel_works_outside_the_source_tree(environment, tmp_path):
    done = run(environment / "bin/python", "-c", USE, tmp_path, cwd=tmp_path)
    assert done.stdout.strip() == "works", done.stderr


@pytest.mark.slow
def test_a_wheel_runs_the_demo_without_a_compiler(environment, tmp_path):
    folder, text = tiny.save(tmp_path / "model", max_position_embeddings=512)
    for name in ("wikitext2-test.txt", "wikitext2-train.txt"):
        (tmp_path / name).write_text(" ".join([text.read_text()] * 2))
    nothing = {"PATH": str(tmp_path), "CC": "/nowhere", "CXX": "/nowhere", "TILEPRESS_DATA": str(tmp_path)}
    demo = [environment / "bin/python", "-m", "tilepress", "demo", folder, "--html", tmp_path / "page.html"]
    done = run(*demo, cwd=tmp_path, **nothing)
    assert done.returncode == 0, done.stderr
    assert "written: " in done.stdout and (tmp_path / "page.html").stat().st_size > 0


def _can_build() -> bool:
    return all(importlib.util.find_spec(name) for name in ("nanobind", "scikit_build_core", "setuptools_scm"))
