"""GGUF files: `tilepress.models.model_folder` of one, which converts it."""

import os
import shutil
from pathlib import Path
from random import Random

import gguf
import numpy as np
from tests.attacks.fuzz.mutate import mutated_bytes
from tests.attacks.fuzz.reader import Case, Files
from transformers.utils import logging

from tilepress.models import ModelUnavailableError, model_folder

NAME = "toy.gguf"
KEYS = (b"block_count", b"head_count", b"vocab_size", b"embedding_length", b"ggml.tokens", b"merges", b"_eps")
SIZES = {
    "context_length": 64, "embedding_length": 32, "feed_forward_length": 64, "block_count": 1, "vocab_size": 8,
    "attention.head_count": 2, "attention.head_count_kv": 2,
}  # fmt: skip
SHAPES = {
    "token_embd": (8, 32), "output_norm": (32,), "output": (8, 32), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
    "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32), "blk.0.ffn_down": (32, 64),
    **{f"blk.0.attn_{name}": (32, 32) for name in ("q", "k", "v", "output")},
}  # fmt: skip
TENSORS = (b"attn_q", b"attn_k", b"attn_v", b"ffn_up", b"output", b"token_embd", b"blk.0", b".weight")


class Reader:
    refusals = (ModelUnavailableError,)

    def __init__(self, folder: Path) -> None:
        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        self.cache = folder / "cache"
        os.environ["TILEPRESS_CACHE"] = str(self.cache)
        _write(folder / NAME)
        content = (folder / NAME).read_bytes()
        self.header = content.rindex(b".weight") + 64  # what follows are numbers, any of which is a good one
        self.samples = [{NAME: content}]

    def mutated(self, files: Files, random: Random) -> Case:
        head, rest = files[NAME][: self.header], files[NAME][self.header :]
        how = random.random()
        if how < 0.1:
            return Case({NAME: mutated_bytes(files[NAME], random)})
        if how < 0.5:
            return Case({NAME: mutated_bytes(head, random) + rest})
        return Case({NAME: _near(head, random.choice(KEYS + TENSORS), random) + rest})

    def read(self, folder: Path) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)
        model_folder(str(folder / NAME), announce=lambda _: None)


def _write(path: Path) -> None:
    """A Llama of one block."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in SIZES.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a", "b", "ab", "d", "abd"])
    writer.add_token_merges(["a b", "ab d"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, shape in SHAPES.items():
        writer.add_tensor(f"{name}.weight", np.full(shape, 0.1, np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()


def _near(head: bytes, name: bytes, random: Random) -> bytes:
    """Changes in a name or in the 32 bytes after it, where its type, its sizes or its value stand."""
    places = [at for at in range(len(head)) if head.startswith(name, at)]
    start = random.choice(places or [0])
    end = start + len(name) + 32
    return head[:start] + mutated_bytes(head[start:end], random) + head[end:]
