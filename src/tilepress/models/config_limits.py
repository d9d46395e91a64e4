"""What a model's config describes, held against what its files hold, before anything of that size is made.

transformers builds whatever config.json says: layers without end, and random numbers for each tensor that no file has.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._bounded import MB, UnreadableError, json_limit, read_bounded_text
from .embedded import ModelUnavailableError
from .linear_form import holders, to_linear_form
from .shards import Shards

AGAIN = "fetch or save the model again"
MOST_LAYERS = 10_000  # of a config: many times what any model has, and few enough to make lists of
BUFFERS = 64 * MB  # bytes that are computed from the config and are in no file: rotations, masks
MISSING = 16_000_000  # weights that may be in no file: loading names them, and random numbers take 64 MB until then
_COUNTS = re.compile(r"(layers?|blocks|stages|depth|labels)$")
OTHER_HEADS = (
    "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
    "ForMultipleChoice",
)  # fmt: skip


def check_config(folder: Path) -> None:
    """ModelUnavailableError where config.json is too large to be parsed, or has more layers than can be listed."""
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    try:
        config = json.loads(read_bounded_text(folder / "config.json", json_limit(weights)))
    except (UnreadableError, RecursionError) as error:
        raise ModelUnavailableError(f"{folder}/config.json cannot be read: {error}") from error
    except ValueError:
        return  # what is not JSON, transformers will name
    for key, count in _counts(config):
        if count > MOST_LAYERS:
            message = f"{folder}/config.json says {key}: {str(count)[:20]}"
            raise ModelUnavailableError(f"{message}, and no model has so many: {AGAIN}")


def check_described(
    folder: Path, config: Any, shards: Shards, trust_remote_code: bool = False, any_head: bool = False
) -> None:
    """ModelUnavailableError where the model that `config` describes has more parameters than the files hold."""
    model = described(folder, config, len(shards.shapes), trust_remote_code, any_head)
    held = sum(map(prod, shards.shapes.values()))
    named = sum(parameter.numel() for parameter in _unpacked(model, config))
    if named > held + MISSING:
        raise ModelUnavailableError(
            f"{folder}/config.json describes {named / 1e6:.1f} million weights beside packed ones, and the files hold "
            f"{held / 1e6:.1f} million numbers: {AGAIN}"
        )
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    if buffers > BUFFERS + shards.nbytes():
        raise ModelUnavailableError(
            f"{folder}/config.json describes a model with {buffers / MB:.0f} MB of constants that no file has: {AGAIN}"
        )


def model_class(config: Any, any_head: bool = False) -> Any:
    """What makes the model of `config`: a causal language model; if `any_head`, the class that it was saved from."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as WRITING

    kinds = config.architectures if isinstance(config.architectures, list) else []
    made_as = getattr(transformers, kinds[0], None) if any_head and kinds and isinstance(kinds[0], str) else None
    is_other = config.model_type not in WRITING or (kinds and str(kinds[0]).endswith(OTHER_HEADS))
    if is_other and isinstance(made_as, type) and issubclass(made_as, transformers.PreTrainedModel):
        return made_as
    return transformers.AutoModelForCausalLM


def build(config: Any, trust_remote_code: bool, any_head: bool = False) -> Any:
    """The model of `config`, with random weights."""
    kind = model_class(config, any_head)
    if hasattr(kind, "_from_config"):
        return kind._from_config(config)
    return kind.from_config(config, trust_remote_code=trust_remote_code)


def described(
    folder: Path, config: Any, tensors: int, trust_remote_code: bool = False, any_head: bool = False
) -> nn.Module:
    """The model without memory for its numbers; ModelUnavailableError where it has many more `tensors` than those of
    its files."""
    # Some models join tensors of their files or divide them; weights that are shared are there twice.
    try:
        with _at_most(2 * tensors + 64, folder), torch.device("meta"):
            model: nn.Module = build(config, trust_remote_code, any_head)
    except ModelUnavailableError:
        raise
    except Exception as error:  # sizes that contradict each other fail in any way, anywhere in transformers
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelUnavailableError(f"transformers cannot build the model of {folder}/config.json: {reason}") from error
    return model


def _counts(value: Any) -> Iterator[tuple[str, float]]:
    """Name and value of all that says how many of something a model has, at any depth."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from ((key, n) for key, n in one.items() if isinstance(n, int | float) and _COUNTS.search(key))
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _unpacked(model: nn.Module, config: Any) -> Iterator[nn.Parameter]:
    """Parameters that the files should hold as they are. A packed layer has no memory until it is put together, and
    files that other tools have packed are not checked here."""
    quantization: Any = getattr(config, "quantization_config", None) or {"quant_method": "tilepress", "layers": {}}
    if not isinstance(quantization, Mapping) or quantization.get("quant_method") != "tilepress":
        return
    layers = quantization.get("layers")
    packed = _packed_names(layers if isinstance(layers, Mapping) else {})
    to_linear_form(model, holders(packed).__contains__)
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        layer, _, kind = name.rpartition(".")
        if not (kind == "weight" and isinstance(modules[layer], nn.Linear | nn.Embedding) and layer in packed):
            yield parameter


def _packed_names(layers: Mapping[str, Any]) -> set[Any]:
    """Those of the layers, and of output layers that take the matrix of one."""
    tied = (layer.get("tied") for layer in layers.values() if isinstance(layer, Mapping))
    return {*layers, *(name for name in tied if isinstance(name, str))}


@contextmanager
def _at_most(count: int, folder: Path) -> Iterator[None]:
    """Modules made meanwhile have so many parameters in all; ModelUnavailableError as soon as there are more."""
    register, made = nn.Module.register_parameter, 0

    def register_and_count(module: nn.Module, name: str, param: Any) -> None:
        nonlocal made
        made += param is not None
        if made > count:
            raise ModelUnavailableError(
                f"{folder}/config.json describes more than {count} tensors, twice what the files hold: {AGAIN}"
            )
        register(module, name, param)

    nn.Module.register_parameter = register_and_count  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
