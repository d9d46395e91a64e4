"""KV cache files: `tilepress.load_kv_cache`, and a turn with what is accepted."""

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import torch
from tests.attacks.fuzz import sealed_file
from tests.attacks.fuzz.reader import Case, Files
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

import tilepress
from tilepress.formats import FormatError
from tilepress.tiles import DamagedError

SIZES = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 512,
}  # fmt: skip
CACHES = {
    "full.safetensors": [
        ("bfp4", "none"), ("bfp4", "online"), ("bfp8+sparse:k30,v50", "none"), ("bfp4+sparse:k30,v50", "online"),
        ("sparse:k30,v50", "none"),
    ],
    "window.safetensors": [("bfp8", "none"), ("bf16+sparse:k70,v20", "none")],
}  # fmt: skip


class Reader:
    """The file's name says which of two models it is for: one with a sliding window, one without."""

    refusals = (DamagedError, FormatError, ValueError)

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.models: dict[str, Any] = {
            "full.safetensors": LlamaForCausalLM(LlamaConfig(**SIZES)).eval(),
            "window.safetensors": MistralForCausalLM(MistralConfig(**SIZES, sliding_window=40)).eval(),
        }
        self.samples = [
            self._sample(folder / name, format, smoothing, length)
            for name, caches in CACHES.items()
            for format, smoothing in caches
            for length in (20, 70)
        ]

    @torch.no_grad()
    def _sample(self, path: Path, format: str, smoothing: str, length: int) -> Files:
        """Two sequences, the second with padding."""
        model = self.models[path.name]
        cache, tokens = tilepress.kv_cache(model, format, smoothing), torch.randint(3, 30, (2, length))
        mask = torch.ones_like(tokens)
        mask[1, :5] = 0
        model(tokens, past_key_values=cache, attention_mask=mask)
        cache.save(path, tokens)
        return {path.name: path.read_bytes()}

    def mutated(self, files: Files, random: Random) -> Case:
        (name,) = files
        if random.random() < 0.3:
            return Case({name: sealed_file.damaged(files[name], random)}, is_damage=True)
        return Case({name: sealed_file.forged(files[name], random)})

    def read(self, folder: Path) -> None:
        (path,) = folder.iterdir()
        model = self.models[path.name]
        cache = tilepress.load_kv_cache(model, path)
        with suppress(Exception), torch.no_grad():  # what a forged cache says may be nonsense, but must do no harm
            self._go_on(model, cache)

    @staticmethod
    def _go_on(model: Any, cache: Any) -> None:
        batch = cache.layers[0].batch_size
        if not 0 < batch < 9:
            return
        model(torch.full((batch, 3), 5), past_key_values=cache)
        cache.crop(cache.get_seq_length() - 2)
        cache.batch_select_indices(torch.tensor([batch - 1, 0, 0]))
        model(torch.full((3, 1), 5), past_key_values=cache)
