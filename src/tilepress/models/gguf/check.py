"""Whether a GGUF file holds every tensor that its model needs, and no other.

transformers puts random numbers in the place of a missing tensor and drops one that it does not know: part of a model,
a renamed tensor or a wrong number of blocks would load as a model that writes nonsense. So names are compared here,
before anything is unpacked, and what transformers reports is looked at afterwards. One tensor cannot be missed:
`output.weight`. A file without it is a whole file of a model whose embedding gives the logits too.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..config_limits import MISSING
from ..embedded import ModelUnavailableError

BLOCK = re.compile(r"blk\.(\d+)\.")
# Tensors that a file may have and a model of transformers does not take: factors of rotary embeddings, which llama.cpp
# reads from the file and transformers computes from the config.
UNUSED = re.compile(r"rope_freqs\.weight|rope_factors_(long|short)\.weight|blk\.\d+\.attn_rot_embd(\.weight)?")
MOST_PER_BYTE = 6  # weights: the smallest formats of GGUF have one and a half bits
AGAIN = "fetch the file again, or convert the original model again"


@dataclass(frozen=True)
class Needed:
    """What transformers makes of a file with certain metadata. `parameters`: names in the model. `sources`: name of a
    tensor in the file → the parameter it becomes, or a part of which. `processor`: transformers' own, which changes
    tensors; `mapping`: what it asks for names."""

    parameters: frozenset[str]
    sources: Mapping[str, str]
    processor: Any = None
    mapping: Mapping[str, str] = field(default_factory=dict)


def check_gguf(name: str, source: Path, announce: Callable[[str], None]) -> Any | None:
    """ModelUnavailableError if the file `source`, `name` to the user, lacks a tensor or has one too many. The model
    without its numbers, where those can be read from the file one by one; else None."""
    from transformers.integrations.gguf.reader import read_gguf_metadata

    metadata, tensors = read_gguf_metadata(str(source))
    if len(set(tensors)) < len(tensors):
        raise ModelUnavailableError(f"{name} has two tensors of one name: {AGAIN}")
    check_blocks(name, tensors, metadata)
    config, model = described_by(source)
    check_size(name, source, model)
    needed = needed_tensors(config, model, metadata["general.architecture"])
    if needed is not None:
        check_tensors(name, tensors, needed)
    unused = [tensor for tensor in tensors if UNUSED.fullmatch(tensor)]
    if unused:
        announce(f"{name}: transformers does not read {unused[0]}; very long texts may come out differently")
    return None if needed is None else model


def check_loaded(name: str, report: Mapping[str, Any]) -> None:
    """ModelUnavailableError if transformers reports tensors that are missing or left over."""
    unexpected = [tensor for tensor in report["unexpected_keys"] if not UNUSED.fullmatch(tensor)]
    _refuse(name, sorted(report["missing_keys"]), sorted(unexpected))


def check_blocks(name: str, tensors: Collection[str], metadata: Mapping[str, Any]) -> None:
    """The blocks of the file must be as many as its metadata says; those that only guess further tokens may be left
    out."""
    key = f"{metadata['general.architecture']}.block_count"
    count, guessing = metadata.get(key), metadata.get(key.replace("block_count", "nextn_predict_layers"), 0)
    blocks = {int(match[1]) for tensor in tensors if (match := BLOCK.match(tensor))}
    if not isinstance(count, int) or not isinstance(guessing, int):
        raise ModelUnavailableError(f"{name} does not say how many blocks it has: {AGAIN}")
    numbered_in_order = blocks == set(range(len(blocks)))
    if not numbered_in_order or not count - guessing <= len(blocks) <= count:
        raise ModelUnavailableError(f"{name} has {len(blocks)} blocks, and its metadata says {count}: {AGAIN}")


def check_size(name: str, source: Path, model: Any) -> None:
    """The metadata must not describe more weights than the file can hold: transformers fills all of them with random
    numbers before it finds out."""
    weights = sum(parameter.numel() for parameter in model.parameters())
    if weights > source.stat().st_size * MOST_PER_BYTE + MISSING:
        raise ModelUnavailableError(
            f"the metadata of {name} describe {weights / 1e6:.1f} million weights, more than a file of its size holds: "
            f"{AGAIN}"
        )


def check_tensors(name: str, tensors: Collection[str], needed: Needed) -> None:
    have, fused = set(tensors), _fused(needed.sources)
    given = {needed.sources[tensor] for tensor in have if tensor in needed.sources}
    given -= {parameter for parameter, parts in fused.items() if not parts <= have}
    named = {parameter: tensor for tensor, parameter in needed.sources.items() if tensor not in have}
    missing = sorted(named.get(parameter, parameter) for parameter in needed.parameters - given)
    unexpected = sorted(tensor for tensor in have - needed.sources.keys() if not UNUSED.fullmatch(tensor))
    _refuse(name, missing, unexpected)


def needed_tensors(config: Any, model: Any, architecture: str) -> Needed | None:
    """What `model`, of `config`, takes from a file; None for the architectures that transformers converts by rules, and
    then reports by itself what is missing or left over."""
    from transformers.integrations.gguf.utils import is_gguf_arch_supported
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    if is_gguf_arch_supported(architecture):
        return None
    make_processor: Any = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
    processor = make_processor(config=config.to_dict())
    parameters = _parameters(model)
    sources = get_gguf_hf_weights_map(_Whole(model), processor)
    if not parameters <= set(sources.values()):
        sources = get_gguf_hf_weights_map(model, processor)
    in_file = {_in_file(tensor): parameter for tensor, parameter in sources.items()}
    return Needed(parameters, in_file, processor, sources)


def described_by(source: Path) -> tuple[Any, Any]:
    """The config that the metadata make, and the model without memory for its numbers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(source.parent), gguf_file=str(source), trust_remote_code=False)
    with torch.device("meta"):
        return config, AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _parameters(model: Any) -> frozenset[str]:
    """Those that must come from a file: not shared with another, nor made up for by the model's class."""
    names = model.state_dict().keys() - model.all_tied_weights_keys.keys()
    optional = model._keys_to_ignore_on_load_missing or ()
    return frozenset(name for name in names if not any(re.search(pattern, name) for pattern in optional))


class _Whole:
    """A model without its submodules. transformers asks each of them for names too, which takes seconds and which few
    models need."""

    def __init__(self, model: Any) -> None:
        self.config, self.state_dict = model.config, model.state_dict

    def named_children(self) -> tuple[()]:
        return ()


def _in_file(tensor: str) -> str:
    """Experts are without `.weight` in transformers' table."""
    return f"{tensor}.weight" if tensor.endswith("_exps") else tensor


def _fused(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Parameter → the tensors it is joined from, all of which it needs: of experts, which may be two in one."""
    parts: dict[str, set[str]] = {}
    for tensor, parameter in sources.items():
        if "_exps" in tensor:
            parts.setdefault(parameter, set()).add(tensor)
    return parts


def _refuse(name: str, missing: list[str], unexpected: list[str]) -> None:
    facts = [f"lacks {len(missing)} of its tensors, {missing[0]} among them"] if missing else []
    facts += [f"has {len(unexpected)} that are not of its model, {unexpected[0]} among them"] if unexpected else []
    if facts:
        raise ModelUnavailableError(f"{name} {' and '.join(facts)}: {AGAIN}")
