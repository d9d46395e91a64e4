"""Compressed models for transformers: `from_pretrained` of a folder with `quant_method` "tilepress" in its config.

The config lists every packed layer with its arrays; the layers are put in their places before weights are loaded, and
checked and completed afterwards. Importing this registers it; `import tilepress` sees to that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ..formats.kv import of_cache
from ..nn import PackedEmbedding, PackedLinear, TiedLinear, decode_by_modules, decode_natively
from ..nn.packed import PackedModule
from ..nn.row_scale import scale_of
from ..tiles import DamagedError, PackedMatrix, unpack
from .checksums import SUMS, check_sums
from .hooks import once_packed
from .linear_form import holders, replace_layer, to_linear_form, to_stored_form
from .saving import Saving

METHOD = "tilepress"
VERSION = 2


@register_quantization_config(METHOD)
class TilepressConfig(QuantizationConfigMixin):
    """What a compressed model's config says of it.

    `layers`: name → its format, density, error, `activations`, and `streams`: the arrays it has, each with its type. An
    embedding may have `tied`: the output layer that computes with its matrix, and with those activations.
    `dense`: name → why, of the layers whose weights stay as they were. `parameters`: how many are packed and how many
    are not. `calibration`: the text that was looked at, by its name, how much of it, and the SHA-256 of its tokens.
    `uncalibrated`: layers that too few tokens reached for the recipe's method. `recipe` and `versions` say how it was
    made, `source` of what: the name that it was loaded by, where it had one, and `origin` what the hub's cards say of
    that: `base_model`, and the keys of its license.
    `checksums` names the file beside it that lists the folder's files; None where that was not written yet.
    """

    def __init__(
        self,
        layers: Mapping[str, Mapping[str, Any]],
        recipe: Mapping[str, Any],
        versions: Mapping[str, str],
        version: int = VERSION,
        source: str | None = None,
        dense: Mapping[str, str] | None = None,
        checksums: str | None = None,
        parameters: Mapping[str, int] | None = None,
        uncalibrated: Sequence[str] = (),
        calibration: Mapping[str, Any] | None = None,
        origin: Mapping[str, str] | None = None,
        **_: Any,
    ) -> None:
        if version != VERSION:
            raise ValueError(
                f"the model was written in version {version} of tilepress' folders and this tilepress reads "
                f"{VERSION}: use the tilepress that wrote it, or compress it again"
            )
        self.quant_method = METHOD  # type: ignore[assignment]  # transformers' own methods are an enumeration
        self.version = version
        self.source = source
        self.checksums = checksums
        self.versions = dict(versions)
        self.recipe = dict(recipe)
        self.layers = {name: dict(layer) for name, layer in layers.items()}
        self.dense = dict(dense or {})
        self.parameters = None if parameters is None else dict(parameters)
        self.uncalibrated = list(uncalibrated)
        self.origin = dict(origin or {})
        self.calibration = None if calibration is None else dict(calibration)


@register_quantizer(METHOD)
class TilepressQuantizer(HfQuantizer):
    """Puts packed layers in the place of linear ones; quantises nothing itself: that is `tilepress compress`."""

    requires_calibration = True
    quantization_config: TilepressConfig
    is_checked = False  # whether every file of weights has the checksum that SHA256SUMS lists
    packed: Sequence[str] = ()  # names of the weights of packed layers in the model that is loaded

    def validate_environment(self, device_map: Any = None, **_: Any) -> None:
        devices = device_map.values() if isinstance(device_map, Mapping) else [device_map]
        for device in devices:
            if str(device) not in ("None", "cpu", "auto") and getattr(device, "type", "") != "cpu":
                raise ValueError(f"packed layers compute on the CPU, and device_map wants {device}: leave it out")

    def update_device_map(self, device_map: Any) -> Any:
        return {"": "cpu"} if device_map == "auto" else device_map

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: Sequence[str] | None = None, **_: Any
    ) -> Any:
        if checkpoint_files:
            self.is_checked = _check_files([Path(file) for file in checkpoint_files], self.quantization_config)
        names = (name for layer in self.quantization_config.layers for name in _candidates(model, layer))
        to_linear_form(model, holders(names).__contains__)
        for name, layer in self.quantization_config.layers.items():
            place = _place(model, name)
            if place is None:
                continue  # a part of the model that this class leaves out: a headless one has no lm_head
            streams = {stream: _dtype(name, dtype) for stream, dtype in layer["streams"].items()}
            plain = model.get_submodule(place)
            if isinstance(plain, nn.Embedding):
                _await_embedding(model, place, plain, streams, self.quantization_config.layers[name])
            else:
                replace_layer(model, place, PackedLinear.awaiting(plain, streams, layer["activations"]))
        self.look_at(model)
        return model

    def look_at(self, model: nn.Module) -> None:
        """Remember which layers of `model` are packed."""
        self.packed = [f"{name}.weight" for name, _ in packed_layers(model)]

    # The model is given since transformers 5.18 or so.
    def update_weight_conversions(self, weight_conversions: list[Any], *_: Any) -> list[Any]:
        """Without those that join experts which are packed one by one."""
        return [rule for rule in weight_conversions if not (hasattr(rule, "operations") and _joins(rule, self.packed))]

    def param_needs_quantization(self, model: Any, param_name: str, **_options: Any) -> bool:
        """True of what a packed layer awaits: since 5.23 transformers takes an array of another shape than the place it
        goes to only here. What it holds is for `complete` to check."""
        name, _, array = param_name.rpartition(".")
        return array != "bias" and isinstance(model.get_submodule(name), PackedModule)

    def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> nn.Module:
        for name, module in packed_modules(model):
            if not isinstance(module, TiedLinear):
                module.complete(name, is_checked=self.is_checked)
        for tied in [module for _, module in packed_modules(model) if isinstance(module, TiedLinear)]:
            tied.follow()
        _prepare(model, self.quantization_config)
        return model

    def _dequantize(self, model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
        model.__dict__.pop("save_pretrained", None)
        return to_stored_form(unpack_layers(model, dtype or torch.float32))  # type: ignore[no-any-return]

    def is_serializable(self, **_: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        return True


def attach(model: Any, config: TilepressConfig) -> None:
    """Make `model`, whose layers are packed already, one that `save_pretrained` saves as such."""
    model.config.quantization_config = config
    model.hf_quantizer = TilepressQuantizer(config, pre_quantized=True)
    model.hf_quantizer.look_at(model)
    model.is_quantized = True
    model.quantization_method = METHOD
    _prepare(model, config)


def _prepare(model: Any, config: TilepressConfig) -> None:
    """What a model gets once its layers are packed, loaded or compressed."""
    config.checksums = SUMS  # which `Saving` writes
    model.save_pretrained = Saving(model)
    decode_natively(model)
    use_cache_of(model, config.recipe)
    for prepare in once_packed:
        prepare(model)


def _check_files(files: Sequence[Path], config: TilepressConfig) -> bool:
    """Check the folder that `files` of weights are in; whether all of them are listed there."""
    folder = files[0].parent
    listed = check_sums(folder)
    of_hub = folder.parent.name == "snapshots"  # transformers fetches only the files it knows
    if config.checksums and not listed and not of_hub:
        raise DamagedError(
            f"{folder} lacks {config.checksums}, without which damage is not seen: copy it too, or write it there: "
            f"sha256sum *.json *.safetensors > {SUMS}"
        )
    return listed.issuperset(file.name for file in files)


def cache_of(recipe: Mapping[str, Any]) -> tuple[str, str] | None:
    """Format and smoothing of the cache that a recipe sets, without what is in the model's weights; None where it stays
    as the model has it."""
    section = recipe.get("kv_cache", {})
    format = section.get("format", "model")
    return None if format == "model" else (format, of_cache(section.get("smoothing", "none")))


# `nn.model_kv_cache` is imported where it is needed: transformers is not whole yet when this module is imported.
def use_cache_of(model: Any, recipe: Mapping[str, Any]) -> None:
    """Let `generate` take the cache that the recipe sets, if it sets one."""
    cache = cache_of(recipe)
    if cache is not None and hasattr(model, "generate"):
        from ..nn.model_kv_cache import set_default_cache

        set_default_cache(model, *cache)


def check_cache_of(model: Any, recipe: Mapping[str, Any]) -> None:
    """FormatError or ValueError where `model` cannot have the cache that the recipe sets."""
    cache = cache_of(recipe)
    if cache is not None:
        from ..nn.model_kv_cache import check_kv_cache

        check_kv_cache(model, cache[0])


def packed_modules(model: nn.Module) -> Iterator[tuple[str, PackedModule]]:
    """Linear layers, and an embedding."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, PackedModule))


def packed_layers(model: nn.Module) -> Iterator[tuple[str, PackedLinear]]:
    return ((name, module) for name, module in packed_modules(model) if isinstance(module, PackedLinear))


def pack_embedding(model: nn.Module, name: str, matrix: PackedMatrix, tied: str | None, activations: str) -> None:
    """Put `matrix` in the place of the embedding's weight; and of that of the output layer `tied`, if it shares it."""
    plain = model.get_submodule(name)
    assert isinstance(plain, nn.Embedding)
    embedding = PackedEmbedding(matrix, plain.weight.dtype, plain.padding_idx, scale_of(plain))
    replace_layer(model, name, embedding)
    if tied is not None:
        replace_layer(model, tied, TiedLinear(embedding, _bias(model, tied), activations))


def _await_embedding(
    model: Any, place: str, plain: nn.Embedding, streams: Mapping[str, torch.dtype], layer: Mapping[str, Any]
) -> None:
    embedding = PackedEmbedding.awaiting(plain, streams)
    replace_layer(model, place, embedding)
    tied = None if layer.get("tied") is None else _place(model, layer["tied"])
    if tied is not None:
        replace_layer(model, tied, TiedLinear(embedding, _bias(model, tied), layer["activations"]))


def _bias(model: nn.Module, name: str) -> Tensor | None:
    bias = model.get_submodule(name).bias
    assert bias is None or isinstance(bias, Tensor)
    return bias


def unpack_layers(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Put ordinary layers, with the weights that the packed ones stand for, in their places; returns the model. Those
    that share a matrix share its weight."""
    decode_by_modules(model)
    weights: dict[int, nn.Parameter] = {}
    for name, module in list(packed_modules(model)):
        assert module.matrix is not None
        weight = weights.get(id(module.matrix))
        if weight is None:
            weight = nn.Parameter(unpack(module.matrix, dtype), requires_grad=False)
        if not isinstance(module, PackedLinear):
            weights[id(module.matrix)] = weight  # no other is shared: the rest need not stay
        replace_layer(model, name, _dense_module(module, weight))
    return model


def _dense_module(module: PackedModule, weight: nn.Parameter) -> nn.Module:
    if isinstance(module, PackedLinear):
        return _dense_linear(module, weight)
    assert isinstance(module, PackedEmbedding)
    return _dense_embedding(module, weight)


def _dense_embedding(module: PackedEmbedding, weight: nn.Parameter) -> nn.Embedding:
    sizes = (module.num_embeddings, module.embedding_dim, module.padding_idx)
    dense = nn.Embedding(*sizes, device="meta") if module.scale is None else module.scale.dense(*sizes)
    dense.weight = weight
    return dense


def _dense_linear(layer: PackedLinear, weight: nn.Parameter) -> nn.Linear:
    dense = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    dense.weight = weight
    if layer.bias is not None:
        dense.bias = nn.Parameter(layer.bias.to(weight.dtype), requires_grad=False)
    return dense


def _joins(rule: Any, tensors: Iterable[str]) -> bool:
    return any(rule.rename_source_key(tensor)[1] is not None for tensor in tensors)


def _dtype(layer: str, name: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(
            f"config.json has arrays of {layer} in {name!r}, which is no type of numbers: compress it again"
        )
    return dtype


def _candidates(model: Any, name: str) -> tuple[str, ...]:
    """Names that a layer may have in `model`, which may be the base model of the one saved, or the other way round."""
    prefix = model.base_model_prefix + "."
    return name, name.removeprefix(prefix), prefix + name


def _place(model: Any, name: str) -> str | None:
    """The layer's name in `model`."""
    for candidate in _candidates(model, name):
        try:
            if isinstance(model.get_submodule(candidate), nn.Linear | nn.Embedding):
                return candidate
        except AttributeError:
            continue
    return None
