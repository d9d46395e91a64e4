"""GGUF files, made into ordinary folders of transformers once, in the cache folder.

In float32: a weight of a GGUF file is a small integer times a half-precision scale, mostly plus a half-precision
minimum, which fits neither bf16 nor fp16; float32 holds what the file's own arithmetic gives.

A file that lacks a tensor, or has one that the model does not take, is refused (`check`), and leaves nothing.
"""

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..._files import apply_umask, cache_folder, workspace
from ..checksums import SUMS, read_sums, write_sums
from ..embedded import ModelUnavailableError, digest_of, known_digest
from .check import check_gguf, check_loaded
from .limits import check_gguf_metadata
from .parts import merge_parts, parts_of

CONVERSION = 2  # changes when the folders do; those of 1 may hold random numbers in the place of missing tensors


def gguf_folder(path: Path, announce: Callable[[str], None]) -> Path:
    """A folder with the model in the GGUF file `path`, or in that and the other parts of a split one, made on first
    use."""
    folder = cache_folder() / f"{path.stem}-{_key(path)}-fp32"
    if not folder.exists():
        _require_packages()
        for part in parts_of(path):
            check_gguf_metadata(part)
        announce(f"Unpacking {path.name} to float32, once, into {folder} …")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with workspace(folder) as beside:
            _convert(path, beside, announce)
            apply_umask(beside / "model")
            _rename(beside / "model", folder)
    elif known_digest(path):
        _check_digests(folder)
    return folder


def _convert(path: Path, beside: Path, announce: Callable[[str], None]) -> None:
    """Write `beside`/model."""
    source = beside / "whole.gguf"
    try:
        if not merge_parts(path, source):
            source.symlink_to(path.resolve())
        check_gguf(path.name, source, announce)
        _unpack(path.name, source, beside / "model")
    except ModelUnavailableError:
        raise
    except Exception as error:  # a damaged file fails in any way, anywhere in transformers or gguf
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).replace(str(source), path.name)
        raise ModelUnavailableError(f"transformers cannot read {path}; is the file whole? ({reason})") from error


def _unpack(name: str, source: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # The file stands alone in its folder, so nothing that lies beside the user's has a say. Its path is absolute, since
    # transformers would take a file of that name in the current folder first.
    given: dict[str, Any] = {"gguf_file": str(source), "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **given)
    dense = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    loaded: Any = AutoModelForCausalLM.from_pretrained(source.parent, **given, **dense)
    model, report = loaded
    check_loaded(name, report)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_sums(folder, {path.name: digest_of(path) for path in folder.iterdir()})


def _rename(made: Path, folder: Path) -> None:
    try:
        os.replace(made, folder)
    except OSError:  # another process was faster; a folder that is there is whole
        if not folder.exists():
            raise
        shutil.rmtree(made)


def _check_digests(folder: Path) -> None:
    """Only done for the embedded model, half a gigabyte: larger ones would take longer to check than to load."""
    sums = read_sums(folder)
    changed = [name for name, digest in sums.items() if digest_of(folder / name) != digest] if sums else [SUMS]
    if changed:
        raise ModelUnavailableError(f"{folder / changed[0]} has changed since it was made: delete {folder}")


def _key(path: Path) -> str:
    """Changes when the file does, or another part of it."""
    known = known_digest(path)
    facts = [(part, part.stat()) for part in parts_of(path)]
    stated = [known] if known else [f"{part.resolve()} {one.st_size} {one.st_mtime_ns}" for part, one in facts]
    return hashlib.sha256(" ".join([str(CONVERSION), *stated]).encode()).hexdigest()[:12]


def _require_packages() -> None:
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise ModelUnavailableError(
                f"reading GGUF files needs the package {package}: pip install 'tilepress[gguf]'"
            )
