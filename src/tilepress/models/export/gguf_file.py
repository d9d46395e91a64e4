"""One GGUF file, which llama.cpp reads, of a compressed model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .gguf_blocks import Blocks, blocks_of
from .gguf_model import Architecture, add_sizes, architecture_of, file_names, row_order
from .gguf_tokenizer import add_tokenizer
from .packed_folder import PackedFolder

DENSE = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def write_gguf(source: PackedFolder, made: Path) -> list[str]:
    """Write the model to the file `made`; returns what there is to say. Each layer is read twice: a file says first
    what types it has."""
    from gguf import GGMLQuantizationType, GGUFWriter

    architecture = architecture_of(source.config)
    writer = GGUFWriter(made, architecture.name)
    add_sizes(writer, source.config, source.folder.name)
    said = add_tokenizer(writer, source.folder, source.config["vocab_size"])
    for name, blocks in _tensors(source, architecture):
        _add_info(writer, name, blocks, GGMLQuantizationType)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_ti_data_to_file):
        step()
    for _, blocks in _tensors(source, architecture):
        writer.write_tensor_data(blocks.data)
    writer.close()
    return [*said, *source.notes()]


def _tensors(source: PackedFolder, architecture: Architecture) -> Iterator[tuple[str, Blocks]]:
    """Name in the file and data of each tensor."""
    name_of = file_names(architecture, source.config)
    for _, layers, others in source.files():
        for layer in layers:
            rows = row_order(architecture, source.config, layer)
            yield name_of(f"{layer}.weight"), blocks_of(layer, source.matrix(layer), rows)
        for name in others:
            if not name.endswith("rotary_emb.inv_freq"):
                yield name_of(name), _dense_blocks(source, architecture, name)


def _dense_blocks(source: PackedFolder, architecture: Architecture, name: str) -> Blocks:
    """As it is stored; vectors in float32, which llama.cpp wants of them."""
    tensor = source.tensor(name)
    rows = row_order(architecture, source.config, name.rpartition(".")[0])
    tensor = tensor if rows is None else tensor[rows]
    tensor = tensor.to(torch.float32) if tensor.ndim == 1 else tensor
    return Blocks(DENSE[tensor.dtype], tensor.contiguous().view(torch.uint8).numpy())


def _add_info(writer: Any, name: str, blocks: Blocks, types: Any) -> None:
    writer.add_tensor_info(name, blocks.data.shape, np.dtype(np.uint8), blocks.data.nbytes, types[blocks.type])
