"""Other libraries that run the same model, to be measured beside ours: only where they run on real kernels.

transformers as it is, torch's weight-only int8 and int4 layers in the place of its linear layers, and llama.cpp with
the same weights. What has no real kernel here, or cannot be had, is refused with the reason.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..formats.kv import parse_kv
from ..models import ModelUnavailableError, load_model, model_folder
from ..models.blocks import linear_layers
from ..models.checkpoint_checks import NOTHING, Allowed
from ..models.embedded import named_model_path
from ..models.linear_form import replace_layer
from ..models.loading import is_compressed, read_config
from ..models.named import NAMED
from ..nn.model_kv_cache import set_default_cache
from ..records import Labels
from . import llama_cpp_model
from .engine_writer import writer
from .kv_peers import llama_cpp_caches, quantized_caches
from .model import Entrant, Settings, TransformersWriter, Writer, check_length, parameter_bytes
from .peers import PEERS, TorchPeer
from .shapes import Shape

WEIGHT_ONLY = ("_weight_int8pack_mm", "_dyn_quant_matmul_4bit", "_weight_int4pack_mm_for_cpu")
Entered = tuple[list[Entrant], dict[str, str]]  # and peer → why it is refused


def entrant(
    name: str, settings: Settings, dtype: torch.dtype | None, kv: str | None = None, allowed: Allowed = NOTHING
) -> Entrant:
    """The model called `name`, of any kind that `load_model` takes, a peer if it is not compressed.

    dtype: of what is not packed; if not given, what the folder of a compressed one says, else `best_dtype`.
    kv: the cache it writes with; if not given, what it remembers, else transformers' own.
    """
    if kv is not None:
        parse_kv(kv)
    shown, labels = (f"{name}, kv {kv}", Labels(model=name, kv=kv)) if kv else (name, Labels(model=name))
    folder = _folder(name, allowed)
    check_length(name, read_config(folder, allowed), settings)
    ours = partial(_load_ours, name, dtype, kv, allowed)
    if is_compressed(folder):
        files = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        return Entrant(shown, files, ours, is_peer=False, labels=labels)
    dtype = dtype or best_dtype()
    size = parameter_bytes(_without_weights(folder, allowed), dtype)
    if kv is not None:
        return Entrant(shown, size, partial(_load_ours, name, dtype, kv, allowed), is_peer=False, labels=labels)
    return Entrant(shown, size, partial(_load, name, dtype, _as_it_is, allowed), labels=labels)


def vocabulary(name: str, allowed: Allowed = NOTHING) -> int:
    size: int = read_config(_folder(name, allowed), allowed).get_text_config().vocab_size
    return size


def base_of(names: Iterable[str]) -> str | None:
    """What to hold `names` against: the first of them that is not compressed, else what the first that tells was
    compressed from."""
    folders = {name: model_folder(name) for name in names}
    dense = (name for name, folder in folders.items() if not is_compressed(folder))
    return next(dense, None) or next(filter(None, map(_source, folders.values())), None)


def peers(base: str | None, is_entered: bool = False, *, caches: bool = False, allowed: Allowed = NOTHING) -> Entered:
    """The entrants that run the model called `base`, which is not compressed; peer → reason for those refused.
    transformers is not among them where `base` in its `best_dtype` `is_entered` already. `caches`: small KV caches in
    the place of other layers."""
    if base is None:
        return [], {"transformers, torch and llama.cpp": "it is not known what was compressed: name it with --base"}
    try:
        folder = _folder(base, allowed)
    except ModelUnavailableError as error:
        return [], {"transformers, torch and llama.cpp": str(error)}
    if is_compressed(folder):
        raise ValueError(f"{base} is compressed: --base is the model as it was before")
    model = _without_weights(folder, allowed)
    everyone: list[Entrant] = []
    refused: dict[str, str] = {}
    around = _caches(base, model, allowed) if caches else _weight_only(base, model, allowed)
    for entrants, reasons in (_transformers(base, model, allowed), around, _llama_cpp(base)):
        everyone += entrants
        refused |= reasons
    if is_entered:
        everyone.pop(0)
    return everyone, refused


def best_dtype() -> torch.dtype:
    """The fastest type that this processor really multiplies."""
    return torch.float32 if bfloat16_refusal() else torch.bfloat16


def bfloat16_refusal() -> str | None:
    """Why torch's bfloat16 is no honest peer here, or None."""
    (peer,) = (peer for peer in PEERS if peer.name == "torch bfloat16")
    return peer.refusal(Shape(32, 32))


def _transformers(base: str, model: nn.Module, allowed: Allowed) -> Entered:
    dtype = best_dtype()
    name = f"transformers {str(dtype).removeprefix('torch.')}"
    reason = bfloat16_refusal()
    refused = {} if reason is None else {"transformers bfloat16": reason}
    load = partial(_load, base, dtype, _as_it_is, allowed)
    return [Entrant(name, parameter_bytes(model, dtype), load, labels=Labels(library=name))], refused


def _weight_only(base: str, model: nn.Module, allowed: Allowed) -> Entered:
    entrants, refused = [], {}
    for peer in PEERS:
        if isinstance(peer, TorchPeer) and peer.operator in WEIGHT_ONLY:
            reasons = {_refusal(peer, layer) for layer in linear_layers(model).values()}
            if None in reasons:
                size = parameter_bytes(model, best_dtype())  # before its layers are replaced
                load = partial(_load, base, best_dtype(), partial(_replace, peer), allowed)
                entrants.append(Entrant(peer.name, size, load, labels=Labels(library=peer.name)))
            else:
                refused[peer.name] = str(reasons.pop()) if reasons else "the model has no linear layer"
    return entrants, refused


def _load(
    name: str, dtype: torch.dtype | None, change: Callable[[Any], None], allowed: Allowed, threads: int
) -> TransformersWriter:
    model = load_model(name, dtype=dtype, **asdict(allowed)).model
    change(model)
    return TransformersWriter(model)


def _load_ours(name: str, dtype: torch.dtype | None, kv: str | None, allowed: Allowed, threads: int) -> Writer:
    model = load_model(name, dtype=dtype, **asdict(allowed)).model
    if kv is not None:
        set_default_cache(model, kv)
    return writer(model, kv, threads)


def _as_it_is(model: nn.Module) -> None:
    pass


class WeightOnlyLinear(nn.Module):
    """A linear layer on weights that torch packs, and multiplies, itself."""

    def __init__(self, layer: nn.Linear, peer: TorchPeer) -> None:
        super().__init__()
        self.peer, self.shape = peer, (layer.out_features, layer.in_features)
        self.bias = layer.bias
        self.packed = nn.ParameterList(
            nn.Parameter(tensor, requires_grad=False) for tensor in peer.pack(layer.weight.detach().float())
        )

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.shape[1]).to(self.peer.dtype).contiguous()
        y = self.peer.multiply(rows, self.shape, *self.packed).to(x.dtype).view(*x.shape[:-1], self.shape[0])
        return y if self.bias is None else y + self.bias


def _replace(peer: TorchPeer, model: nn.Module) -> None:
    """Layers of shapes that the peer does not take stay as they are."""
    for name, layer in linear_layers(model).items():
        if _refusal(peer, layer) is None:
            replace_layer(model, name, WeightOnlyLinear(layer, peer))


def _refusal(peer: TorchPeer, layer: nn.Linear) -> str | None:
    return peer.refusal(Shape(layer.out_features, layer.in_features))


def _caches(base: str, model: Any, allowed: Allowed) -> Entered:
    dtype = best_dtype()
    quantized, refused = quantized_caches(base, model.config, dtype, parameter_bytes(model, dtype), allowed)
    reason = _llama_cpp_refusal(base)
    if reason is not None:
        return quantized, {**refused, "llama.cpp's caches": reason}
    return [*quantized, *llama_cpp_caches(_gguf(base))], refused


def _llama_cpp_refusal(base: str) -> str | None:
    is_gguf = base in NAMED or Path(base).is_file()
    return llama_cpp_model.refusal() if is_gguf else f"llama.cpp reads GGUF files, and {base} is none"


def _gguf(base: str) -> Path:
    return named_model_path(base) if base in NAMED else Path(base)


def _llama_cpp(base: str) -> Entered:
    names = {f"llama.cpp {kind}": kind for kind in llama_cpp_model.KINDS}
    reason = _llama_cpp_refusal(base)
    if reason is not None:
        return [], dict.fromkeys(names, reason)
    path = _gguf(base)
    size = 2 * path.stat().st_size  # whatever it is stored in, it gets no larger than that in eight bits
    loads = {name: partial(_load_llama_cpp, path, kind) for name, kind in names.items()}
    return [Entrant(name, size, load, pool="ggml", labels=Labels(library=name)) for name, load in loads.items()], {}


def _load_llama_cpp(path: Path, kind: str, threads: int) -> llama_cpp_model.LlamaCppWriter:
    return llama_cpp_model.LlamaCppWriter(llama_cpp_model.requantized(path, kind), threads)


def _source(folder: Path) -> str | None:
    """The name of the model that a compressed one says it was made from."""
    config = json.loads((folder / "config.json").read_text())
    name: str | None = config.get("quantization_config", {}).get("source")
    return name


def _folder(name: str, allowed: Allowed) -> Path:
    return model_folder(name, trust_remote_code=allowed.trust_remote_code)


def _without_weights(folder: Path, allowed: Allowed) -> nn.Module:
    from transformers import AutoModelForCausalLM

    config = read_config(folder, allowed)
    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(config, trust_remote_code=allowed.trust_remote_code)
    return model
