"""What a model's folder has that we would lose without a word, or that could run code: refused, in one line.

Weights quantised by other tools are codes without a meaning when their scales are dropped; a tensor that the model does
not take is a sign of that, of a wrong config, or of a part of the model (a vision tower) that is left out.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .embedded import ModelUnavailableError
from .quantized import METHODS
from .registration import METHOD

# Buffers that old checkpoints hold and models compute by themselves.
COMPUTED = re.compile(r"(^|\.)(inv_freq|original_inv_freq|position_ids|masked_bias)$")
DRAFT = re.compile(r"(^|\.)mtp")  # heads that guess further tokens: without them a model writes the same text


@dataclass(frozen=True)
class Allowed:
    """What the user has agreed to.

    trust_remote_code: to run the Python code in a model's folder. text_only: to leave out the parts of a model that are
    not its language model.
    """

    trust_remote_code: bool = False
    text_only: bool = False


NOTHING = Allowed()


def refuse_foreign_format(folder: Path, config: Any) -> None:
    """Weights that are not plain tensors in the model's own files."""
    for part in (config, config.get_text_config()):
        method = _method(getattr(part, "quantization_config", None))
        if method not in (None, METHOD):
            raise ModelUnavailableError(f"{folder} is quantised already, by {method}, {_instead(method, folder)}")
    if getattr(config, "transformers_weights", None):
        raise ModelUnavailableError(f"{folder}/config.json names files of weights by itself: save the model again")
    if (folder / "adapter_config.json").exists():
        raise ModelUnavailableError(f"{folder} holds an adapter beside the model: merge them, and save that")


def without_quantization(config: Any) -> None:
    """Take from a config that another tool quantised the model."""
    for part in (config, config.get_text_config()):
        if hasattr(part, "quantization_config"):
            del part.quantization_config


def _instead(method: str, folder: Path) -> str:
    if method in METHODS:
        return f"and has to be packed first, with the codes and scales it has: tilepress compress {folder} -o OUT"
    return "and its scales would be lost: give the model that it was made from"


def refuse_code(name: object, error: Exception) -> None:
    """Says in our words that transformers would have to run the model's own code, if `error` is that."""
    if "trust_remote_code" in str(error):
        raise ModelUnavailableError(
            f"{name} comes with Python code that must run to load it, and such code can do whatever you can: read it, "
            "and if you trust it give --trust-remote-code (trust_remote_code=True)"
        ) from error


def refuse_unused(
    name: object, model: Any, stored: Iterable[str], allowed: Allowed, announce: Callable[[str], None]
) -> None:
    """Refuse `stored`, names in the model's files, that no tensor of `model` takes; parts that are not of the language
    model may be left out if the user says so."""
    state, kind = model.state_dict(), type(model).__name__
    unused = {tensor: place for tensor, place in places(model, stored).items() if place not in state}
    parts, strays = _sorted_out(model, unused)
    if strays:
        raise ModelUnavailableError(
            f"{name} has {len(strays)} tensors that {kind} does not use, {strays[0]} among them: give a model that is "
            "not quantised and fits its config.json"
        )
    if parts and not allowed.text_only:
        raise ModelUnavailableError(
            f"{name} has parts that {kind} is without, {', '.join(parts)}: to leave them out and keep the language "
            "model give --text-only (text_only=True)"
        )
    if parts:
        counted = ", ".join(f"{part} ({count} tensors)" for part, count in parts.items())
        announce(f"left out of {name}, text only: {counted}")


def places(model: Any, stored: Iterable[str], streamed: bool = False) -> dict[str, str]:
    """Name in the files → name in `model` of the tensor it becomes, or a part of which, as transformers would load it.
    `streamed`: only as far as that is the same tensor under another name."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    joining = [] if streamed else [rule for rule in rules if isinstance(rule, WeightConverter)]
    state, base = model.state_dict(), model.base_model_prefix
    return {
        name: name if name in state else rename_source_key(name, renamings, joining, base, state)[0] for name in stored
    }


def _method(stated: Any) -> str | None:
    if not stated:
        return None
    method = stated.get("quant_method") if isinstance(stated, Mapping) else getattr(stated, "quant_method", None)
    return str(getattr(method, "value", method) or "an unknown method")


def _sorted_out(model: Any, unused: Mapping[str, str]) -> tuple[dict[str, int], list[str]]:
    """Part of a larger model → how many of the `unused` tensors it has; and those that are of no part. Neither counts
    what models compute, nor what the class of `model` says its files may have too much of, unless that is a part."""
    modules = {name for name, _ in model.named_modules()}
    patterns = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    parts: dict[str, int] = {}
    strays = []
    for tensor, place in unused.items():
        part = _part(place, modules, model.base_model_prefix)
        is_ignored = any(re.search(pattern, place) for pattern in patterns)
        if COMPUTED.search(place) or (is_ignored and (part is None or DRAFT.search(part))):
            continue
        if part is None:
            strays.append(tensor)
        else:
            parts[part] = parts.get(part, 0) + 1
    return parts, strays


def _part(tensor: str, modules: Container[str], base: str) -> str | None:
    """The module of `tensor` that stands beside those of the model, or of its base model; None if the tensor is of one
    of theirs. Old files leave the base model's name out."""
    absent = [_first_absent(name, modules) for name in (tensor, f"{base}.{tensor}")]
    is_part = all(name is not None and name.rpartition(".")[0] in ("", base) for name in absent)
    return absent[0] if is_part else None


def _first_absent(tensor: str, modules: Container[str]) -> str | None:
    """The outermost module of a tensor's name that is not among `modules`."""
    path = tensor.split(".")[:-1]
    names = (".".join(path[:length]) for length in range(1, len(path) + 1))
    return next((name for name in names if name not in modules), None)
