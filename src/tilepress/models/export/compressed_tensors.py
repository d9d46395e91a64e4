"""Folders of compressed-tensors, which vLLM and transformers read.

| our format | theirs |
|---|---|
| signed integers, groups or rows | pack-quantized, 4 or 8 bits |
| int8:row with int8 activations | int-quantized (W8A8) |
| unsigned integers with whole zero points | pack-quantized, asymmetric |
| e4m3:row | float-quantized |
| mxfp4 | mxfp4-pack-quantized |
| bf16, fp16 | not quantised |
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..._safetensors import INDEX, SINGLE
from ...formats import E2M1, E4M3, Float
from ...formats.tensors import scale_values
from ...tiles import PackedMatrix, unpack, unpack_codes
from ..quantized.fields import pack_fields, pack_nibbles
from .errors import no_counterpart
from .integers import Integers, integers_of
from .packed_folder import PackedFolder

NAME = "compressed-tensors"
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Settings = dict[str, Any]
Parts = dict[str, Tensor]
_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def write_compressed_tensors(source: PackedFolder, made: Path) -> list[str]:
    """Write the model to the folder `made`; returns what there is to say."""
    groups: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for file, layers, others in source.files():
        tensors = {name: source.tensor(name) for name in others}
        for layer in layers:
            matrix = source.matrix(layer)
            settings, parts = layer_parts(layer, matrix, source.activations(layer))
            groups.setdefault(json.dumps(settings), []).append(layer)
            tensors |= {f"{layer}.{part}": tensor for part, tensor in parts.items()}

        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, made / file, {"format": "pt"})
        places |= dict.fromkeys(tensors, file)
    _write_index(made, places)
    config = source.config | {"quantization_config": _config(groups, list(source.stated.get("dense", {})))}
    (made / "config.json").write_text(json.dumps(config, indent=2))
    return source.notes()


def layer_parts(name: str, matrix: PackedMatrix, activations: str) -> tuple[Settings | None, Parts]:
    """How a layer is described, and its tensors; None for one that is not quantised."""
    element = matrix.format.element
    if element.name in HALVES and matrix.format.scaling is None:
        return None, {"weight": unpack(matrix, HALVES[element.name])}
    integers = integers_of(matrix)
    if integers is not None:
        return _integer_parts(matrix, integers, activations)
    scaling = matrix.format.scaling
    if element == E4M3 and scaling is not None and scaling.group is None:
        return _e4m3_parts(matrix)
    if element == E2M1 and scaling is not None and (scaling.group, scaling.type) == (32, "e8m0"):
        return _mxfp4_parts(matrix)
    raise no_counterpart(name, matrix.format, NAME, _why(matrix), _nearest(matrix))


def _integer_parts(matrix: PackedMatrix, integers: Integers, activations: str) -> tuple[Settings, Parts]:
    bits = 4 if integers.element.bits <= 4 else 8
    scales = integers.scales if integers.scales.dtype != torch.uint8 else scale_values(integers.scales).bfloat16()
    weights: Settings = {"num_bits": bits, "type": "int", "symmetric": integers.zeros is None, "dynamic": False}
    weights |= _strategy(integers.group)
    if activations == "int8" and integers.group is None and bits == 8 and integers.zeros is None:
        settings = {"format": "int-quantized", "weights": weights, "input_activations": _TOKEN}
        return settings, {"weight": integers.codes.to(torch.int8), "weight_scale": scales}
    offset = 1 << (bits - 1) if integers.zeros is None else 0  # codes count from the least one
    parts = {
        "weight_packed": pack_fields((integers.codes + offset).to(torch.uint8), bits),
        "weight_scale": scales,
        "weight_shape": torch.tensor(matrix.shape),
    }
    if integers.zeros is not None:
        parts["weight_zero_point"] = pack_fields(integers.zeros.t().to(torch.uint8), bits).t().contiguous()
    return {"format": "pack-quantized", "weights": weights, "input_activations": None}, parts


def _e4m3_parts(matrix: PackedMatrix) -> tuple[Settings, Parts]:
    quantized, _ = unpack_codes(matrix)
    assert quantized.scales is not None
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, **_strategy(None)}
    parts = {"weight": quantized.codes.view(torch.float8_e4m3fn), "weight_scale": _scales(quantized.scales)}
    return {"format": "float-quantized", "weights": weights, "input_activations": None}, parts


def _mxfp4_parts(matrix: PackedMatrix) -> tuple[Settings, Parts]:
    quantized, _ = unpack_codes(matrix)
    assert quantized.scales is not None
    codes = torch.nn.functional.pad(quantized.codes, (0, -matrix.cols % 2))
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "dynamic": False, **_strategy(32)}
    weights["scale_dtype"] = "torch.uint8"
    parts = {"weight_packed": pack_nibbles(codes), "weight_scale": quantized.scales}
    return {"format": "mxfp4-pack-quantized", "weights": weights, "input_activations": None}, parts


def _scales(stored: Tensor) -> Tensor:
    return scale_values(stored).bfloat16() if stored.dtype == torch.uint8 else stored


def _strategy(group: int | None) -> Settings:
    return {"strategy": "channel"} if group is None else {"strategy": "group", "group_size": group}


def _why(matrix: PackedMatrix) -> str:
    if matrix.format.has_zero_point:
        return "zero points between the codes"
    return f"no scheme of it has {matrix.format.element} in such groups"


def _nearest(matrix: PackedMatrix) -> str:
    if isinstance(matrix.format.element, Float) and matrix.format.element.bits == 8:
        return "e4m3:row"
    return "int4:g32" if matrix.format.element.bits <= 4 else "int8:g32"


def _write_index(made: Path, places: Mapping[str, str]) -> None:
    if set(places.values()) == {SINGLE}:
        return
    size = sum((made / name).stat().st_size for name in set(places.values()))
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": places}, indent=2, sort_keys=True)
    (made / INDEX).write_text(text)


def _config(groups: Mapping[str, list[str]], dense: list[str]) -> Settings:
    settings = {text: layers for text, layers in groups.items() if text != "null"}
    ignored = [*dense, *groups.get("null", [])]
    named: Settings = {}
    for number, (text, layers) in enumerate(settings.items()):
        targets = ["Linear"] if len(settings) == 1 else layers
        named[f"group_{number}"] = {**json.loads(text), "output_activations": None, "targets": targets}
    formats = {group["format"] for group in named.values()}
    return {
        "quant_method": NAME,
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": named,
        "ignore": sorted({*ignored, "lm_head"} - {layer for layers in settings.values() for layer in layers}),
        "kv_cache_scheme": None,
    }
