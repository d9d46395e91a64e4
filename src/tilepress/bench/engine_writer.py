"""Our models as the engine runs them."""

import time
from typing import Any

from torch import Tensor

from ..engine import Engine, Sampling
from ..engine.opening import is_native
from ..formats import FormatError
from .model import TransformersWriter, Writer, bytes_read
from .race import free_memory

STEP_TOKENS = 16_384  # of a step at most: fewer than that of prompts are computed at once, as by everyone else


class EngineWriter:
    """A model in the engine, without its prefix cache: every prompt is computed.

    Args:
        model: of transformers, packed or not.
        kv: the cache; see `Engine`.
        threads: of a step.
    """

    def __init__(self, model: Any, kv: str | None = None, threads: int | None = None) -> None:
        self.bytes_read = bytes_read(model)
        self.engine = Engine(
            model, kv, threads=threads, kv_memory=free_memory(), step_tokens=STEP_TOKENS, prefix_cache=False, eos=()
        )

    def write(self, prompt: Tensor, tokens: int) -> list[float]:
        greedy = Sampling(max_tokens=tokens, temperature=0)
        began = time.perf_counter()
        streams = [self.engine.submit(row, greedy) for row in prompt.tolist()]
        ends: list[float] = []
        while len(ends) < tokens:
            goes_on = self.engine.step()
            ends += [time.perf_counter()] * (min(len(stream.tokens) for stream in streams) - len(ends))
            if not goes_on and len(ends) < tokens:
                reasons = [stream.error for stream in streams if stream.error]
                raise RuntimeError(reasons[0] if reasons else f"an answer ended after {len(ends)} of {tokens} tokens")
        return [began, *ends]


def writer(model: Any, kv: str | None = None, threads: int | None = None) -> Writer:
    """The engine's; transformers' for models and caches that are none of its native code."""
    try:
        return EngineWriter(model, kv, threads) if is_native(model) else TransformersWriter(model)
    except FormatError:
        return TransformersWriter(model)
