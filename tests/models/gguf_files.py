"""Tiny GGUF files of random weights, whole, damaged or split."""

import numpy as np
import pytest

LLAMA = {"attn_norm": (32,), "ffn_norm": (32,), "ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}
LLAMA |= {f"attn_{name}": (32, 32) for name in ("q", "k", "v", "output")}
EXPERTS = {name: shape for name, shape in LLAMA.items() if not name.startswith("ffn_") or name == "ffn_norm"}
WIDTH = 768  # of experts, which transformers does not read from a file: its own default
EXPERTS |= {"ffn_gate_inp": (4, 32), "ffn_gate_exps": (4, WIDTH, 32), "ffn_up_exps": (4, WIDTH, 32)}
EXPERTS |= {"ffn_down_exps": (4, 32, WIDTH), "attn_q_norm": (16,), "attn_k_norm": (16,)}
OF_EXPERTS = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": WIDTH,
    "attention.key_length": 16,
}
BLOCKS = {"llama": (LLAMA, {}), "qwen3moe": (EXPERTS, OF_EXPERTS)}


def write_gguf(
    path, architecture="llama", *, blocks=1, stated=None, tied=False, rename=lambda name: name, types=None, **options
):
    """A tiny model in GGUF's names and order; returns its weights by name.

    stated: the number of blocks in the metadata, if another. tied: without an output layer. rename: name in the file of
    each tensor, None to leave it out; types: name without its block → type of GGML, F32 for the others; options: of
    GGUFWriter.
    """
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture, **options)
    of_block, sizes = BLOCKS[architecture]
    sizes = {
        "context_length": 64, "embedding_length": 32, "feed_forward_length": 64, "attention.head_count": 2,
        "attention.head_count_kv": 2, "vocab_size": 8, "block_count": blocks if stated is None else stated, **sizes,
    }  # fmt: skip
    for key, value in sizes.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a", "b", "ab", "d", "abd"])
    writer.add_token_merges(["a b", "ab d"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    numbers = np.random.default_rng(0)
    shapes = {"token_embd": (8, 32), "output_norm": (32,)} | ({} if tied else {"output": (8, 32)})
    shapes |= {f"blk.{block}.{name}": shape for block in range(blocks) for name, shape in of_block.items()}
    weights = {name: numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    for name, weight in weights.items():
        if (called := rename(f"{name}.weight")) is not None:
            add_tensor(writer, called, weight, (types or {}).get(name.split(".")[-1], "F32"))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    return weights


def add_tensor(writer, name, weight, type):
    from gguf import GGMLQuantizationType, quants

    kind = GGMLQuantizationType[type]
    writer.add_tensor(name, quants.quantize(weight, kind), raw_dtype=kind)
