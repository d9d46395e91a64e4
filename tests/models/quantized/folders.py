"""Tiny Llamas that another tool has quantised."""

import json

import torch
from safetensors.torch import load_file, save_file

from tests.models import tiny
from tests.models.quantized import writers

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": False}


def save(folder, config, parts_of, **changes):
    """A folder with every projection in the parts that `parts_of(name, shape)` gives; a text lies beside."""
    tiny.save(folder, **changes)
    return quantise(folder, config, parts_of)


def quantise(folder, config, parts_of):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for weight in [name for name in tensors if name.endswith("_proj.weight")]:
        shape, name = tensors.pop(weight).shape, weight.removesuffix(".weight")
        tensors |= {f"{name}.{part}": tensor.contiguous() for part, tensor in parts_of(name, shape).items()}
    save_file(tensors, path, {"format": "pt"})
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stated | {"quantization_config": config}))
    return folder


def gptq(folder, scattered=(), **changes):
    """(folder, name → float32 weights by the scheme's formula); the layers `scattered` were quantised with desc_act."""
    expected, random = {}, torch.Generator().manual_seed(0)

    def parts_of(name, shape):
        codes = torch.randint(0, 16, shape, generator=random)
        scales = (torch.rand(shape[0], shape[1] // 32, generator=random) / 50 + 0.001).half()
        zeros = torch.randint(0, 16, scales.shape, generator=random)
        owners = torch.arange(shape[1]) // 32
        if name in scattered:
            owners = owners[torch.randperm(shape[1], generator=random)]
        expected[name] = (codes - zeros[:, owners]) * scales[:, owners].float()
        return writers.gptq(codes, zeros, scales, 4, owners)

    return save(folder, GPTQ, parts_of, **changes), expected
