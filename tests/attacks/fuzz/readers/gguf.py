"""GGUF files: `tilepress.models.model_folder` of one, and all the weights in it."""

import os
import shutil
from pathlib import Path
from random import Random

from tests.attacks.fuzz.mutate import mutated_bytes
from tests.attacks.fuzz.reader import Case, Files
from tests.models.gguf_files import write_gguf
from transformers.utils import logging

from tilepress.models import ModelUnavailableError, model_folder
from tilepress.models.gguf.tensors import open_weights

NAME = "toy.gguf"
KEYS = (b"block_count", b"head_count", b"vocab_size", b"embedding_length", b"ggml.tokens", b"merges", b"_eps")
TENSORS = (b"attn_q", b"attn_k", b"attn_v", b"ffn_up", b"output", b"token_embd", b"blk.0", b".weight")


class Reader:
    refusals = (ModelUnavailableError,)

    def __init__(self, folder: Path) -> None:
        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        self.cache = folder / "cache"
        os.environ["TILEPRESS_CACHE"] = str(self.cache)
        write_gguf(folder / NAME)
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
        shards = open_weights(model_folder(str(folder / NAME), announce=lambda _: None))
        for name in shards:
            shards[name]


def _near(head: bytes, name: bytes, random: Random) -> bytes:
    """Changes in a name or in the 32 bytes after it, where its type, its sizes or its value stand."""
    places = [at for at in range(len(head)) if head.startswith(name, at)]
    start = random.choice(places or [0])
    end = start + len(name) + 32
    return head[:start] + mutated_bytes(head[start:end], random) + head[end:]
