"""A packed model's predictions, computed as the engine computes its answers."""

from itertools import count, pairwise
from typing import Any

import torch
from torch import Tensor

from ..engine.batch import Chunk, Runner
from ..engine.equivalent import equivalent_runner

STEP_TOKENS = 512


class EngineModel:
    """Takes the place of its model in `perplexity`, `divergence` and `accuracy`.

    Args:
        model: whose weights and cache are used.
        runner: which computes it.
    """

    def __init__(self, model: Any, runner: Runner) -> None:
        self.config, self.runner = model.config, runner

    def predictions(self, tokens: Tensor, scored: int) -> Tensor:
        """See `tilepress.evaluate.scoring.predictions`. Padding is computed like any other token: it comes last."""
        rows = tokens[:, :-1].tolist()
        length, size = len(rows[0]), max(1, STEP_TOKENS // len(rows))
        bounds = [*range(0, length, size), length]
        steps = [
            self._step(rows, start, end, min(end - start, end - length + scored)) for start, end in pairwise(bounds)
        ]
        return torch.cat(steps, dim=1)

    def _step(self, rows: list[list[int]], start: int, end: int, wanted: int) -> Tensor:
        """Logits [rows, wanted, vocabulary] for the last of the tokens from `start` to before `end`; none if `wanted`
        is not positive."""
        wanted, pages = max(0, wanted), -(-len(rows[0]) // self.runner.page_tokens)
        chunks = [
            Chunk(tuple(row[start:end]), start, tuple(range(first, first + pages)), wanted)
            for row, first in zip(rows, count(0, pages), strict=False)
        ]
        return self.runner.run(chunks).view(len(rows), wanted, self.runner.vocabulary)


def in_engine(model: Any, kv: str | None = None, smoothing: str = "none") -> Any:
    """The model as the engine computes it, with its own cache or with another. The model itself where the engine does
    not: it is not packed, on another device, of another family, or its activations are rounded for a study."""
    runner = equivalent_runner(model, kv, smoothing) if model.device.type == "cpu" else None
    return model if runner is None else EngineModel(model, runner)
