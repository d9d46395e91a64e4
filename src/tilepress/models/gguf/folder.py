"""GGUF files, given a folder like those of transformers once, in the cache folder: config and tokenizer, made of the
metadata, and a link to the file, whose weights are read from there (`tensors`).

A few architectures are converted by rules of transformers that want the whole model; those folders hold it in float32.
A weight of a GGUF file is a small integer times a half-precision scale, mostly plus a half-precision minimum, which
fits neither bf16 nor fp16; float32 holds what the file's own arithmetic gives.

A file that lacks a tensor, or has one that the model does not take, is refused (`check`), and leaves nothing.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..._files import apply_umask, cache_folder, workspace
from ..checksums import SUMS, digests_of, is_weights, read_sums, write_sums
from ..embedded import ModelUnavailableError, digest_of, known_digest
from .check import check_gguf, check_loaded
from .limits import check_gguf_metadata
from .parts import merge_parts, parts_of
from .tensors import LINK, GgufShards, require_packages

LAYOUT = 3  # changes when the folders do; those of 1 may hold random numbers in the place of missing tensors
Announce = Callable[[str], None]


def gguf_folder(path: Path, announce: Announce) -> Path:
    """A folder with the model in the GGUF file `path`, or in that and the other parts of a split one, made on first
    use."""
    require_packages()
    folder = cache_folder() / f"{path.stem}-{_key(path)}"
    if not folder.exists():
        for part in parts_of(path):
            check_gguf_metadata(part)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with workspace(folder) as beside:
            _make(path, beside, folder, announce)
            apply_umask(beside / "model")
            _rename(beside / "model", folder)
    else:
        _check_digests(folder)
    return folder


def _make(path: Path, beside: Path, folder: Path, announce: Announce) -> None:
    """Write `beside`/model, which becomes `folder`."""
    source, made = beside / LINK, beside / "model"
    try:
        if not merge_parts(path, source):
            source.symlink_to(path.resolve())
        model = check_gguf(path.name, source, announce)
        if model is None:
            announce(f"Unpacking {path.name} to float32, once, into {folder} …")
            _unpack(path.name, source, made)
        else:
            _describe(model, source, made)
            os.rename(source, made / LINK)
            GgufShards(made)  # which refuses what it could not read later
    except ModelUnavailableError:
        raise
    except Exception as error:  # a damaged file fails in any way, anywhere in transformers or gguf
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).replace(str(source), path.name)
        raise ModelUnavailableError(f"transformers cannot read {path}; is the file whole? ({reason})") from error


def _describe(model: Any, source: Path, folder: Path) -> None:
    """What transformers writes beside a model's weights."""
    tokenizer = _tokenizer(source)
    config = model.config
    config.architectures, config.dtype = [type(model).__name__], torch.float32
    config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_sums(folder)


def _unpack(name: str, source: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, GgufConfig

    tokenizer = _tokenizer(source)
    dense = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    given: dict[str, Any] = {"gguf_file": str(source), "trust_remote_code": False}
    loaded: Any = AutoModelForCausalLM.from_pretrained(source.parent, **given, **dense)
    model, report = loaded
    check_loaded(name, report)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _write_sums(folder)


def _tokenizer(source: Path) -> Any:
    """The file stands alone in its folder, so nothing that lies beside the user's has a say. Its path is absolute, as
    transformers would take a file of that name in the current folder first."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(source.parent, gguf_file=str(source), trust_remote_code=False)


def _write_sums(folder: Path) -> None:
    write_sums(folder, digests_of(folder, [path.name for path in folder.iterdir() if path.is_file()]))


def _rename(made: Path, folder: Path) -> None:
    try:
        os.replace(made, folder)
    except OSError:  # another process was faster; a folder that is there is whole
        if not folder.exists():
            raise
        shutil.rmtree(made)


def _check_digests(folder: Path) -> None:
    """Of all but unpacked weights, gigabytes, which would take longer to check than to load."""
    sums = {name: digest for name, digest in read_sums(folder).items() if not is_weights(name)}
    changed = [name for name, digest in sums.items() if digest_of(folder / name) != digest] if sums else [SUMS]
    if changed:
        raise ModelUnavailableError(f"{folder / changed[0]} has changed since it was made: delete {folder}")


def _key(path: Path) -> str:
    """Changes when the file does, or another part of it."""
    known = known_digest(path)
    facts = [(part, part.stat()) for part in parts_of(path)]
    places = [f"{part.resolve()} {one.st_size} {one.st_mtime_ns}" for part, one in facts]
    stated = [*places, *([known] if known else [])]
    return hashlib.sha256(" ".join([str(LAYOUT), *stated]).encode()).hexdigest()[:12]
