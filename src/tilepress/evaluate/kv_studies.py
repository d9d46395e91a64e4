"""Studies of KV caches: what each costs in quality, and whether a fact far back is still found.

Perplexity and divergence come from emulation, which gives a packed cache's numbers for whole windows; retrieval comes
from the cache itself, by `generate`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..nn.kv_cache import kv_cache
from ..nn.kv_emulation import emulate_kv
from .divergence import Divergence, _compare, _summary
from .estimate import Estimate
from .scoring import predictions, stack
from .windows import Track, Windowing, plan


@dataclass(frozen=True)
class Cache:
    """See `tilepress.kv_cache`."""

    format: str
    smoothing: str = "none"

    def __str__(self) -> str:
        return self.format if self.smoothing == "none" else f"{self.format}, {self.smoothing}"


PLAIN = Cache("fp16")

# Harmonia, figure 5: all tokens alike, fewer and fewer bits.
MANTISSAS = tuple(Cache(f"bfp:m{bits}") for bits in range(8, 0, -1))
# Figure 8: without and with more bits for the first and the last tokens.
ASYMMETRIC = tuple(
    cache for bits in (5, 4, 3) for cache in (Cache(f"bfp:m{bits}"), Cache(f"bfp:m{bits}:hi8:initial32:local64"))
)
# Its ablation, of what is computed while text is written.
ABLATION = (Cache("bfp:m4"), Cache("bfp4"), Cache("bfp4", "online"))
# SparAMX, figures 17 and 18: % of keys by % of values that are zero, as halves and as 8 bits.
SPARSITY = tuple(Cache(f"sparse:k{k},v{v}") for k in (0, 30, 50, 70) for v in (0, 30, 50, 70) if k or v)
SPARSE_BFP8 = tuple(Cache(f"bfp8+{cache.format}") for cache in SPARSITY)


def judge_caches(
    model: Any, tokens: Tensor, caches: Sequence[Cache], windowing: Windowing | None = None, track: Track = iter
) -> dict[Cache, Divergence]:
    """Each cache against the same model with halves, on `tokens` [count]. The model's attention is as before then."""
    figures: dict[Cache, list[Tensor]] = {cache: [] for cache in caches}
    try:
        for batch in track(plan(len(tokens), windowing or Windowing(), model)):
            rows, targets = stack(tokens, batch)
            emulate_kv(model, PLAIN.format)
            plain = predictions(model, rows, targets.shape[1])
            for cache, found in figures.items():
                emulate_kv(model, cache.format, cache.smoothing)
                found.append(_compare(predictions(model, rows, targets.shape[1]), plain, targets))
    finally:
        emulate_kv(model, "none")
    return {cache: _summary(torch.cat(found, dim=1)) for cache, found in figures.items()}


@dataclass(frozen=True)
class Fact:
    """A text of about so many tokens with a fact in it, and its last words, which are the fact's but for the answer."""

    text: str
    answer: str


NAMES = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Henry", "Irene", "Jonas", "Karla", "Louis")
PLACES = ("garden", "harbour", "library", "market", "museum", "station", "theatre", "village", "workshop", "castle")


def make_fact(tokenizer: Any, tokens: int, depth: float, seed: int) -> Fact:
    """A text of at most `tokens` tokens, with the fact at `depth` of it: 0 is its beginning, 1 its end."""
    choice = random.Random(seed)
    name, code = choice.choice(NAMES), f"{choice.randrange(1000, 10000)}"
    fact, question = f"The door code of {name} is {code}.", f"The door code of {name} is"
    others = [other for other in NAMES if other != name]
    sentences: list[str] = []
    length = len(tokenizer(f"{fact} {question}")["input_ids"])
    while True:
        sentence = f"{choice.choice(others)} walks from the {choice.choice(PLACES)} to the {choice.choice(PLACES)}."
        length += len(tokenizer(" " + sentence, add_special_tokens=False)["input_ids"])
        if length > tokens:
            break
        sentences.append(sentence)
    sentences.insert(round(depth * len(sentences)), fact)
    return Fact(" ".join([*sentences, question]), code)


@torch.inference_mode()
def retrieval(
    model: Any, tokenizer: Any, cache: Cache, tokens: int, items: int, seed: int = 0, track: Track = iter
) -> Estimate:
    """Share of `items` facts at random depths of texts of `tokens` tokens that the model repeats to the letter."""
    choice = random.Random(seed)
    hits = []
    for item in track([(choice.random(), choice.randrange(1 << 30)) for _ in range(items)]):
        fact = make_fact(tokenizer, tokens, *item)
        prompt = tokenizer(fact.text, return_tensors="pt")
        wanted = len(tokenizer(" " + fact.answer, add_special_tokens=False)["input_ids"]) + 1
        past = kv_cache(model, cache.format, cache.smoothing)
        out = model.generate(**prompt, past_key_values=past, max_new_tokens=wanted, do_sample=False)
        said = tokenizer.decode(out[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        hits.append(float(said.strip().startswith(fact.answer)))
    return Estimate.of(torch.tensor(hits))
