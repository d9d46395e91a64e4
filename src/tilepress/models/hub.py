"""Compressed folders to the Hugging Face hub and back, by its own client library.

A push is one commit: what SHA256SUMS lists, the list, the card and records; of an earlier model there, the weights that
the new one lacks are deleted in it. Nothing else of the folder leaves the machine, and no path of it: where config.json
names a folder that the model was made from, the hub gets the last part of its name.

A pull fetches exactly what the list there names, beside its place; the folder appears when every sum is right.
"""

import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import apply_umask, sync, write_text
from .._safetensors import INDEX, DamagedError, is_whole_model
from .checksums import CARD, SUMS, check_sums, read_sums
from .inspection.compressed import is_compressed_config
from .inspection.weights import read_json, weight_files
from .kept_records import RECORDS, read_records

CONFIG = "config.json"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO, errno.ENOENT)
LOGIN = "set HF_TOKEN, or run `hf auth login` once"


class HubError(ValueError):
    """What the hub, or the way to it, refused; the message says what to do."""


@dataclass(frozen=True)
class Transfer:
    """What went over: `commit` as the hub calls it, `nbytes` of all `files`."""

    repository: str
    commit: str
    files: int
    nbytes: int


def push(folder: Path, repository: str, *, private: bool = False, revision: str | None = None) -> Transfer:
    """Make the hub's `repository` hold the compressed model in `folder`; it is created if it is not there, and so is
    the branch `revision`. HubError, DamagedError or ValueError, before anything is sent, where that cannot be."""
    _check_name(repository)
    names = _names_to_push(folder)
    contents = shared_contents(folder)
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token

    if get_token() is None:
        raise HubError(f"there is no token of the hub, so nothing can be pushed: {LOGIN}")
    api = HfApi()
    with _in_words(repository, revision):
        api.create_repo(repository, private=private or None, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise HubError(f"{repository} is there and public: push without --private, or make it private on its page")
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        there = api.list_repo_files(repository, revision=revision)
        stale = [name for name in there if (is_whole_model(name) or name == INDEX) and name not in names]
        adds = [CommitOperationAdd(name, contents.get(name, str(folder / name))) for name in names]
        operations: list[Any] = [*adds, *(CommitOperationDelete(name) for name in stale)]
        message = f"{folder.resolve().name}, compressed by Tilepress"
        done = api.create_commit(repository, operations, commit_message=message, revision=revision)
    return Transfer(repository, done.oid, len(names), sum((folder / name).stat().st_size for name in names))


def pull(repository: str, out: Path, *, revision: str | None = None) -> Transfer:
    """Fetch a compressed model to the folder `out`, which must be new or empty. Interrupted, the same call goes on from
    what has come. HubError where the hub has no such model, DamagedError where its sums do not hold."""
    _check_name(repository)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HubError(f"{out} exists: choose another folder with -o, or move it away")
    beside = out.resolve().with_name(f"{out.resolve().name}.pulling")
    with _locked(beside):
        transfer = _fetch(repository, beside, revision)
        _check_pulled(repository, beside / "model")
        apply_umask(beside / "model")
        for path in (beside / "model").iterdir():
            sync(path)
        os.replace(beside / "model", out.resolve())
        sync(out.resolve().parent)
        shutil.rmtree(beside)
    return transfer


def shared_contents(folder: Path) -> dict[str, bytes]:
    """Files that the hub gets otherwise than they are: config.json without paths, and the list that has its sum."""
    config = read_json(folder / CONFIG, folder)
    stated, sums = config["quantization_config"], read_sums(folder)
    source, text = stated.get("source"), stated.get("recipe", {}).get("calibration", {}).get("text")
    if not _is_path(source) and not _is_path(text):
        return {}
    if _is_path(source):
        stated["source"] = Path(source).name
    if _is_path(text):
        stated["recipe"]["calibration"]["text"] = Path(text).name
    content = json.dumps(config, indent=2).encode()
    if CONFIG not in sums:
        return {CONFIG: content}
    sums[CONFIG] = hashlib.sha256(content).hexdigest()
    return {CONFIG: content, SUMS: "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode()}


def _is_path(name: Any) -> bool:
    is_text = isinstance(name, str) and os.sep in name
    return is_text and (name.startswith((os.sep, ".", "~")) or not REPOSITORY.fullmatch(name) or Path(name).exists())


def _names_to_push(folder: Path) -> list[str]:
    if not (folder / CONFIG).is_file() or not is_compressed_config(read_json(folder / CONFIG, folder)):
        raise HubError(f"{folder} is not a folder that `tilepress compress` wrote: compress a model first")
    listed = check_sums(folder)
    if unlisted := [path.name for path in weight_files(folder) if path.name not in listed]:
        raise HubError(f"{folder / SUMS} lists no sum of {unlisted[0]}, so a pull could not be checked: compress again")
    more = [CONFIG, CARD, *([RECORDS] if read_records(folder) else [])]
    return sorted({*listed, SUMS, *(name for name in more if (folder / name).is_file())})


def _fetch(repository: str, beside: Path, revision: str | None) -> Transfer:
    """The model, to `beside`/model."""
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download

    with _in_words(repository, revision):
        info = HfApi().model_info(repository, revision=revision)
    commit, there = str(info.sha), {one.rfilename for one in info.siblings or ()}
    model = beside / "model"
    _forget_another(beside, {"repository": repository, "commit": commit})
    if not {CONFIG, SUMS} <= there:
        raise _no_model(repository, beside)
    with _in_words(repository, revision):
        for name in (CONFIG, SUMS):
            hf_hub_download(repository, name, revision=commit, local_dir=model)
        if not is_compressed_config(read_json(model / CONFIG, model)):
            raise _no_model(repository, beside)
        wanted = {CONFIG, SUMS, CARD, RECORDS, *read_sums(model)} & there
        patterns = [glob.escape(name) for name in wanted]
        snapshot_download(repository, revision=commit, local_dir=model, allow_patterns=patterns)
    shutil.rmtree(model / ".cache", ignore_errors=True)  # the client's notes of what has come
    size = sum(path.stat().st_size for path in model.iterdir())
    return Transfer(repository, commit, len(wanted), size)


def _no_model(repository: str, beside: Path) -> HubError:
    shutil.rmtree(beside)
    return HubError(f"{repository} on the hub is not a model that tilepress compressed, so it is not pulled")


def _check_pulled(repository: str, model: Path) -> None:
    """DamagedError, and nothing is left, where a sum does not hold or weights have none."""
    try:
        listed = check_sums(model)
        if unlisted := [path.name for path in weight_files(model) if path.name not in listed]:
            raise DamagedError(f"{SUMS} lists no sum of {unlisted[0]}")
    except DamagedError as error:
        shutil.rmtree(model)
        reason = str(error).partition(":")[0].replace(f"{model}{os.sep}", "").replace(str(model), "it")
        raise DamagedError(
            f"{repository} came damaged, or is so on the hub ({reason}): pull again, or have it pushed again"
        ) from error


def _forget_another(beside: Path, wanted: dict[str, str]) -> None:
    """Begin anew where an interrupted pull was of another model."""
    note = beside / "pull.json"
    if not note.exists() or json.loads(note.read_text()) != wanted:
        shutil.rmtree(beside / "model", ignore_errors=True)
        write_text(note, json.dumps(wanted))
    (beside / "model").mkdir(exist_ok=True)


@contextmanager
def _locked(beside: Path) -> Iterator[None]:
    """One pull at a time to a place; a failure before the first file leaves nothing."""
    beside.mkdir(parents=True, exist_ok=True)
    with open(beside / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HubError(f"another tilepress is pulling to {beside}: wait for it, or choose another place") from error
        try:
            yield
        finally:
            if beside.exists() and not (beside / "model").exists():
                shutil.rmtree(beside)


@contextmanager
def _in_words(repository: str, revision: str | None) -> Iterator[None]:
    """Errors of the client library as one sentence that says what to do."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except (HubError, DamagedError):
        raise
    except GatedRepoError as error:
        raise HubError(f"{repository} asks for an agreement first: accept it on its page, and {LOGIN}") from error
    except RepositoryNotFoundError as error:
        hint = f"check the name; if it is private, {LOGIN}"
        raise HubError(f"the hub has no model {repository}, or not for you: {hint}") from error
    except RevisionNotFoundError as error:
        raise HubError(f"{repository} has no revision {revision}: give a branch, a tag or a commit of it") from error
    except HfHubHTTPError as error:
        code = error.response.status_code
        hint = f"the token may not do that: {LOGIN} with one that may" if code in (401, 403) else "try again later"
        raise HubError(f"the hub refused {repository} ({code}: {_reason(error)}): {hint}") from error
    except Exception as error:  # of the network, by whatever library the client uses
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise
        raise HubError(f"{constants.ENDPOINT} did not answer as a hub does ({_reason(error)}): try again") from error


def _reason(error: Exception) -> str:
    stated = getattr(error, "server_message", None) or str(error)
    return next((line.strip() for line in str(stated).splitlines() if line.strip()), type(error).__name__)[:200]


def _check_name(repository: str) -> None:
    if not REPOSITORY.fullmatch(repository):
        raise HubError(f"{repository!r} is no name on the hub: give OWNER/NAME")
