"""Checkpoints of other tools: `open_checkpoint` of a folder of each scheme, and every layer of it packed."""

import json
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from tests.attacks.fuzz import sealed_file
from tests.attacks.fuzz.mutate import mutated_bytes, mutated_text, mutated_tree
from tests.attacks.fuzz.reader import Case, Files
from tests.models.quantized import writers

from tilepress.formats import NF4
from tilepress.models import ModelUnavailableError
from tilepress.models.importing import rounded
from tilepress.models.quantized import QuantizedShards, open_checkpoint
from tilepress.tiles import pack_codes

CONFIG, WEIGHTS = "config.json", "model.safetensors"
NEURONS, INPUTS, GROUP = 32, 64, 32
TABLE = torch.tensor(NF4.values)
CODES = torch.arange(NEURONS * INPUTS).view(NEURONS, INPUTS) * 7 % 16
ZEROS = torch.full((NEURONS, INPUTS // GROUP), 3)
SCALES = torch.full(ZEROS.shape, 0.01).half()
ALL_GROUPS = {"strategy": "group", "group_size": GROUP}


class Reader:
    refusals = (ModelUnavailableError, ValueError)

    def __init__(self, folder: Path) -> None:
        self.samples = [_sample(folder, config, parts) for config, parts in SCHEMES]

    def mutated(self, files: Files, random: Random) -> Case:
        how = random.random()
        if how < 0.45:
            return Case({**files, CONFIG: _mutated_config(files[CONFIG], random)})
        if how < 0.75:
            return Case({**files, WEIGHTS: sealed_file.mutated_table(files[WEIGHTS], random)})
        return Case({**files, WEIGHTS: _mutated_arrays(files[WEIGHTS], random)})

    def read(self, folder: Path) -> None:
        shards = open_checkpoint(folder)
        for name in shards:
            if isinstance(shards, QuantizedShards) and name in shards.quantised:
                _pack(shards, name)
            else:
                shards[name]


def _pack(shards: QuantizedShards, name: str) -> None:
    """As `Importing` does it, the first expert where there are many."""
    weight = shards.source_weight(name, 0 if len(shards.shapes[name]) == 3 else None)
    assert weight is not None
    quantized, format, _, _ = rounded(name, weight)
    pack_codes(quantized, format)


def _sample(folder: Path, config: dict[str, object], parts: dict[str, torch.Tensor]) -> Files:
    tensors = {f"a.{name}": tensor.contiguous() for name, tensor in parts.items()}
    save_file(tensors | {"norm.weight": torch.ones(8)}, folder / "sample")
    return {CONFIG: json.dumps({"quantization_config": config}).encode(), WEIGHTS: (folder / "sample").read_bytes()}


def _mutated_config(content: bytes, random: Random) -> bytes:
    if random.random() < 0.2:
        return mutated_text(content.decode(), random).encode("utf-8", "replace")
    config = json.loads(content)
    config["quantization_config"] = mutated_tree(config["quantization_config"], random)
    return json.dumps(config).encode()


def _mutated_arrays(content: bytes, random: Random) -> bytes:
    """Other codes, scales and indices under a table that fits them."""
    table, arrays = sealed_file.split(content)
    mutant = mutated_bytes(arrays, random)[: len(arrays)]
    return sealed_file.joined(table, mutant.ljust(len(arrays), b"\0"))


def _packed(format: str, **weights: object) -> dict[str, object]:
    group = {"targets": [r"re:^a$", "Linear"], "format": format, "weights": {"num_bits": 4, "type": "int", **weights}}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}}


def _fp8(blocks: bool) -> dict[str, torch.Tensor]:
    weight = (CODES / 16).to(torch.float8_e4m3fn)
    return {"weight": weight, "weight_scale_inv": torch.ones(2, 2)} if blocks else _channels(weight)


def _channels(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"weight": weight, "weight_scale": torch.full((NEURONS, 1), 0.01)}


BLOCKS, POWERS = writers.nibbles(CODES).view(NEURONS, 2, 16), torch.full((NEURONS, 2), 120).byte()
EXPERTS = {"experts.down_proj_blocks": BLOCKS.repeat(2, 1, 1, 1), "experts.down_proj_scales": POWERS.repeat(2, 1, 1)}
NESTED = (TABLE.repeat(16), torch.ones(1), 256)
NESTED_CODES = torch.arange(NEURONS).byte()
ABSMAX = torch.ones(NEURONS * INPUTS // 64)
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True}
SCHEMES = [
    ({"quant_method": "gptq", "bits": 4, "group_size": GROUP}, writers.gptq(CODES, ZEROS, SCALES, 4)),
    (
        {"quant_method": "gptq", "bits": 3, "group_size": GROUP, "desc_act": True},
        writers.gptq(CODES % 8, ZEROS, SCALES, 3, torch.arange(INPUTS) % 2),
    ),
    ({"quant_method": "awq", "bits": 4, "group_size": GROUP}, writers.awq(CODES, ZEROS, SCALES)),
    (_packed("pack-quantized", symmetric=False, **ALL_GROUPS), writers.pack_quantized(CODES, SCALES, 4, ZEROS)),
    (_packed("int-quantized", num_bits=8, strategy="channel"), _channels((CODES - 8).to(torch.int8))),
    (_packed("float-quantized", num_bits=8, type="float", strategy="channel"), _fp8(blocks=False)),
    ({"quant_method": "fp8", "weight_block_size": [16, 32]}, _fp8(blocks=True)),
    ({"quant_method": "mxfp4"}, {"weight_blocks": BLOCKS, "weight_scales": POWERS}),
    ({"quant_method": "mxfp4"}, EXPERTS),
    (BITSANDBYTES, writers.bitsandbytes(CODES, ABSMAX, TABLE, 64)),
    (BITSANDBYTES, writers.bitsandbytes(CODES, NESTED_CODES, TABLE, 64, nested=NESTED, offset=0.5)),
]
