"""Model folders: `tilepress.models.load_model` of plain, sharded and compressed ones, and a token from what loads."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from random import Random

import torch
from tests.attacks.fuzz import sealed_file
from tests.attacks.fuzz.mutate import mutated_bytes, mutated_text, mutated_tree
from tests.attacks.fuzz.reader import Case, Files
from tests.models import tiny
from transformers.utils import logging

from tilepress.models import ModelUnavailableError, compress_folder, load_model
from tilepress.models.checksums import CARD
from tilepress.tiles import DamagedError

WEIGHTS, INDEX = ".safetensors", "model.safetensors.index.json"
SUMS = "SHA256SUMS"  # of every other file of a compressed folder but the card, which people edit


class Reader:
    """Beside our own, errors of transformers that the command line shows as one line are refusals."""

    refusals = (ModelUnavailableError, DamagedError, ValueError, RuntimeError, OSError, FileNotFoundError)

    def __init__(self, folder: Path) -> None:
        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        plain, sharded, small = (folder / name for name in ("plain", "sharded", "small"))
        tiny.save(plain, **sizes)
        tiny.make("llama", **sizes).save_pretrained(sharded, max_shard_size="20KB")
        tiny.tokenizer().save_pretrained(sharded)
        if not small.exists():
            compress_folder(str(plain), small, {"weights": {"format": "int4:g32"}}, announce=lambda _: None)
        self.samples = [_files(one) for one in (plain, sharded, small)]

    def mutated(self, files: Files, random: Random) -> Case:
        name, is_listed = _chosen(files, random), SUMS in files
        if random.random() < 0.05:
            rest = {other: content for other, content in files.items() if other != name}
            return Case(rest, is_damage=is_listed and name != SUMS)
        change = _mutated_weights if name.endswith(WEIGHTS) else _mutated_json
        new = {**files, name: change(files[name], random)}
        if not is_listed or random.random() < 0.5:
            return Case(new, is_damage=is_listed and name != SUMS and new != files)
        return Case({**new, SUMS: new[SUMS].replace(_sha256(files[name]), _sha256(new[name]))})

    def read(self, folder: Path) -> None:
        loaded = load_model(str(folder), announce=lambda _: None)
        with suppress(Exception), torch.no_grad():  # a changed config may say what no forward pass can do
            loaded.model(torch.tensor([[1, 5]]))


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != CARD}


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _chosen(files: Files, random: Random) -> str:
    """Mostly what says what the model is; sometimes any file."""
    ours = [name for name in files if name in ("config.json", INDEX) or name.endswith(WEIGHTS)]
    return random.choice(ours if random.random() < 0.8 else sorted(files))


def _mutated_json(content: bytes, random: Random) -> bytes:
    how, text = random.random(), content.decode()
    if how < 0.1 or not text.startswith("{"):
        return mutated_bytes(content, random)
    if how < 0.2:
        return mutated_text(text, random).encode("utf-8", "replace")
    return json.dumps(mutated_tree(json.loads(text), random)).encode()


def _mutated_weights(content: bytes, random: Random) -> bytes:
    return (sealed_file.damaged if random.random() < 0.5 else sealed_file.mutated_table)(content, random)
