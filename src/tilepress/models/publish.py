"""A finished folder takes the place of the old one in one step, and what the user put there stays.

    OUT.partial/SHA256SUMS   of the new model: tells whether the folder at OUT is the new one
    OUT.partial/ready/       the new model; once the two have changed places, the old one
    OUT.partial/replaced/    the old model, for a moment, where the file system cannot exchange two folders
    OUT.partial/trash/       the old model when nothing of it is needed any more

The user's files are linked into the new folder first, so they are at OUT all the time. A run that was killed here is
brought to an end by `recover`.
"""

import ctypes
import errno
import filecmp
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .._files import sync, write_text
from .._safetensors import INDEX, SINGLE, DamagedError
from .checksums import SUMS, digests_of, is_own_card, is_weights, read_sums
from .kept_records import is_own_records

MODEL, READY, REPLACED, TRASH, LOCK = "model", "ready", "replaced", "trash", "lock"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS)


MAKE_ROOM = "make room there, and the same command goes on from what is finished"


class OutputError(ValueError):
    """A place that cannot be written to, because something is there already."""


def publish(root: Path, out: Path) -> None:
    """Give root/model, which is whole, the place `out`, and remove `root`."""
    ready = root / READY
    _keep_listed(root / MODEL)
    write_text(root / SUMS, (root / MODEL / SUMS).read_text("utf-8"))
    os.rename(root / MODEL, ready)
    if out.exists():
        carry_over(out, ready)
        shutil.copymode(out, ready)
    sync(ready)
    sync(root)
    _take_place(ready, out, root / REPLACED)
    sync(out.parent)
    sync(root)
    with suppress(OSError, OutputError):  # the model is in its place; the next run removes what is left
        _clear(root, out)
        shutil.rmtree(root)


def recover(root: Path, out: Path) -> None:
    """After a kill in `publish`: either all is done and `root` is emptied, or the new model is at root/model again."""
    if is_published(root, out):
        _clear(root, out)
        return
    if (root / REPLACED).exists():
        os.rename(root / REPLACED, out)
    if (root / READY).exists():
        _keep_listed(root / READY)
        os.rename(root / READY, root / MODEL)


def is_published(root: Path, out: Path) -> bool:
    """Whether the new model has left `root` for `out`, where the user may have changed it since."""
    new, there = _read(root / SUMS), _read(out / SUMS)
    return new is not None and (new == there or ((root / READY).exists() and new != _read(root / READY / SUMS)))


def refuse_clashes(out: Path, files: Mapping[str, Path | None]) -> None:
    """OutputError if one of the user's files in `out` has the name of one of `files` to be written, but not its bytes.
    `files`: name → what it is a copy of, if it is one."""
    for path in own_files(out):
        source = files.get(path.name)
        if path.name in files and (source is None or not _same(path, source)):
            raise OutputError(
                f"{path} is not as tilepress wrote it, and the new model has a file of that name: move it away, or "
                "choose another output"
            )


def own_files(out: Path) -> list[Path]:
    """What the user has in the folder of a compressed model: all that its SHA256SUMS does not list but the model
    card and records of it, and files changed since, but no weights: nobody edits those, and reading them takes long."""
    if not out.is_dir():
        return []
    try:
        listed = read_sums(out) or dict.fromkeys(_names_before_sums(out), "")
    except DamagedError as error:
        raise OutputError(f"{error.args[0]}; which files in {out} are yours is not known: move it away") from error
    texts = [name for name in listed if not is_weights(name) and (out / name).is_file()]
    changed = {name for name, digest in digests_of(out, texts).items() if listed[name] not in ("", digest)}
    ours = listed.keys() - changed | {SUMS}
    return [path for path in sorted(out.iterdir()) if path.name not in ours and not _is_written(path)]


def _is_written(path: Path) -> bool:
    """Whether it is one of ours that is not listed."""
    return is_own_card(path) or is_own_records(path)


def carry_over(old: Path, new: Path) -> None:
    """Put links to the user's files in `old` into `new`, where they are not yet."""
    for path in own_files(old):
        target = new / path.name
        if os.path.lexists(target) and not _same(path, target):
            raise OutputError(f"{path} is new, and the model to be put there has a file of that name: move it away")
        _link(path, target)


def exchange(a: Path, b: Path) -> None:
    """Two folders change places in one step; OSError ENOSYS or EINVAL where the system cannot do that."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(a), None, str(b))


def _take_place(ready: Path, out: Path, replaced: Path) -> None:
    if not out.exists() or not any(out.iterdir()):
        os.rename(ready, out)
        return
    try:
        exchange(ready, out)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
        _take_place_in_two_steps(ready, out, replaced)


def _take_place_in_two_steps(ready: Path, out: Path, replaced: Path) -> None:
    os.rename(out, replaced)
    try:
        os.rename(ready, out)
    except BaseException:
        if not out.exists():
            os.rename(replaced, out)
        raise


def _keep_listed(model: Path) -> None:
    """Remove links to the user's files, which are in `out`, and what a kill left."""
    for path in own_files(model):
        _remove(path)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _clear(root: Path, out: Path) -> None:
    """Empty `root`, when the new model is at `out`. SHA256SUMS is last: it says that this may be done."""
    for old in (root / READY, root / REPLACED):
        if old.exists():
            carry_over(old, out)  # what the user put there in the last moment
            _remove(root / TRASH)
            os.rename(old, root / TRASH)
    for path in root.iterdir():
        if path.name not in (SUMS, LOCK):
            _remove(path)
    _remove(root / SUMS)


def _names_before_sums(out: Path) -> set[str]:
    """What was written to a folder by the versions that wrote no list, companions apart."""
    try:
        shards = set(json.loads((out / INDEX).read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        shards = {SINGLE}
    return {"config.json", INDEX, "search.json", *shards}


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        if not os.path.lexists(target):
            _link_file(path, target)
        return
    target.mkdir(exist_ok=True)
    for inner in path.iterdir():
        _link(inner, target / inner.name)
    shutil.copystat(path, target)
    sync(target)


def _link_file(path: Path, target: Path) -> None:
    """A copy, where the file system has no links. Never one of another file system: that is mounted there, and deleting
    the old folder would empty it."""
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copy2(path, target, follow_symlinks=False)
        if not target.is_symlink():
            sync(target)


def _same(own: Path, other: Path) -> bool:
    """Whether nothing of `own` is lost where `other` takes its place."""
    if own.is_symlink():
        return other.is_symlink() and os.readlink(own) == os.readlink(other)
    if own.is_file():
        return other.is_file() and filecmp.cmp(own, other, shallow=False)
    return other.is_dir() if own.is_dir() else os.path.samefile(own, other)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
