"""Files that appear whole or not at all, that the umask decides who may read, and that a power cut does not lose.

A file is written in a folder beside it, `.NAME.xxxxxxxx.part`, which is locked for as long as its process lives. So the
next one to write NAME knows which of these folders were left behind by a killed process, and removes them.
"""

import errno
import fcntl
import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # a folder that cannot be synced, or may not be read


def cache_folder() -> Path:
    """TILEPRESS_CACHE, or `tilepress` in the user's cache folder; it need not exist."""
    if folder := os.environ.get("TILEPRESS_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilepress"


def write_text(path: Path, text: str) -> None:
    """Replace the file `path`, or make it, in UTF-8: whole or not at all."""
    with replacing(path) as made:
        made.write_text(text, "utf-8", newline="")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Where to write a file that takes the place of `path` at the end, unless something is raised before."""
    path = Path(path)
    with workspace(path) as folder:
        made = folder / path.name
        yield made
        os.chmod(made, _mode_of(path, folder))
        sync(made)
        os.replace(made, path)
    sync(path.parent)


@contextmanager
def workspace(path: str | Path) -> Iterator[Path]:
    """A folder beside `path` to make it in, removed at the end."""
    path = Path(path)
    _sweep(path)
    folder, lock = _make_locked(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def apply_umask(folder: Path) -> None:
    """Give the files in `folder` the mode of any new file: safetensors' own are for their owner alone."""
    mode = _new_file_mode(folder)
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            os.chmod(path, mode)


def sync(path: Path) -> None:
    """Have a file's bytes, or a folder's entries, on the disk before anything that comes after."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC or not path.is_dir():
            raise


def _mode_of(path: Path, folder: Path) -> int:
    """A file that is replaced keeps its mode: somebody may have made it private."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return _new_file_mode(folder)


def _new_file_mode(folder: Path) -> int:
    """Asked of a file, because the umask itself can only be read by setting it, for all threads."""
    probe = folder / ".mode"
    descriptor = os.open(probe, os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        os.unlink(probe)


def _make_locked(path: Path) -> tuple[Path, int]:
    """A new folder and a descriptor that holds its lock. Another process may take it for a stray one before it is
    locked: then once more."""
    while True:
        folder = _make_folder(path)
        with suppress(FileNotFoundError):
            lock = _open(folder)
            with suppress(OSError):  # a file system without locks: nobody sweeps there
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _make_folder(path: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(".part", f".{path.name}.", path.parent))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _sweep(path: Path) -> None:
    """Remove the folders that killed processes left beside `path`."""
    for stray in path.parent.glob(f".{glob.escape(path.name)}.{'[a-z0-9_]' * 8}.part"):
        with suppress(OSError):  # it is locked, or not ours
            lock = _open(stray)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(stray)
            finally:
                os.close(lock)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
