"""A GGUF file's tensors and a few of its fields, read from its header alone."""

from math import prod
from pathlib import Path

from ..gguf.limits import Stated, not_whole, read_header, read_texts
from .dense import DenseModel, Tensor

MAGIC = b"GGUF"
LONGEST = 1000  # characters of a field that is shown
FIELDS = (
    "general.architecture", "general.name", "general.license", "general.base_model.0.repo_url", "general.quantized_by",
)  # fmt: skip

# ggml's types: number → name, numbers in a block, bytes of one.
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1),
    25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip


def read_gguf(path: Path) -> DenseModel:
    """ModelUnavailableError where the header cannot be read, or the file ends before its last tensor."""
    header, texts = read_header(path), read_texts(path, FIELDS)
    tensors = [_tensor(name, stated) for name, stated in header.tensors.items()]
    ends = (stated.offset + one.nbytes for stated, one in zip(header.tensors.values(), tensors, strict=True))
    if header.start + max(ends, default=-header.start) > path.stat().st_size:
        raise not_whole(path, "it ends before its last tensor does")
    facts = {key.removeprefix("general."): text[:LONGEST] for key, text in texts.items()}
    return DenseModel(tensors, facts)


def _tensor(name: str, stated: Stated) -> Tensor:
    label, numbers, size = TYPES.get(stated.type, (f"type {stated.type}", 1, 0))
    return Tensor(name, label, stated.shape, -(-prod(stated.shape) // numbers) * size)
