"""GGUF files, made into ordinary folders of transformers once and kept in the cache folder.

Kept in float32: a weight of a GGUF file is a small integer times a half-precision scale, mostly plus a half-precision
minimum, which fits neither bf16 nor fp16; float32 holds what the file's own arithmetic gives.
"""

import hashlib
import importlib.util
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import torch

from ..files import apply_umask, workspace
from .embedded import ModelUnavailableError, cache_folder


def gguf_folder(path: Path, announce: Callable[[str], None]) -> Path:
    """A folder with the model in the GGUF file `path`, made on first use."""
    folder = cache_folder() / f"{path.stem}-{_key(path)}-fp32"
    if not folder.exists():
        _require_packages()
        announce(f"Unpacking {path.name} to float32, once, into {folder} …")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with workspace(folder) as beside:
            _convert(path, beside / "model")
            apply_umask(beside / "model")
            _rename(beside / "model", folder)
    return folder


def _convert(path: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**source)
        dense = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, quantization_config=dense)
    except (ValueError, LookupError, NotImplementedError, OSError, struct.error) as error:
        raise ModelUnavailableError(f"transformers cannot read {path}; is the file whole? ({error})") from error
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _rename(made: Path, folder: Path) -> None:
    try:
        os.replace(made, folder)
    except OSError:  # another process was faster; a folder that is there is whole
        if not folder.exists():
            raise
        shutil.rmtree(made)


def _key(path: Path) -> str:
    """Changes when the file does."""
    facts = path.stat()
    return hashlib.sha256(f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}".encode()).hexdigest()[:12]


def _require_packages() -> None:
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise ModelUnavailableError(
                f"reading GGUF files needs the package {package}: pip install 'tilepress[gguf]'"
            )
