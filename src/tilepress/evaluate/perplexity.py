"""Perplexity of a model on a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .estimate import Estimate
from .scoring import losses, predictions, stack
from .windows import Track, Window, Windowing, plan


@dataclass(frozen=True)
class Perplexity:
    """exp(loss), of a loss in nats per token; `tokens` counted."""

    perplexity: Estimate
    loss: Estimate
    tokens: int

    @classmethod
    def of(cls, losses: Tensor) -> "Perplexity":
        loss = Estimate.of(losses)
        return cls(loss.exp(), loss, len(losses))


def perplexity(
    model: PreTrainedModel, tokens: Tensor, windowing: Windowing | None = None, track: Track = iter
) -> Perplexity:
    """Perplexity of `model` on `tokens` [count], window by window; `track` sees the batches go by."""
    batches = plan(len(tokens), windowing or Windowing(), model)
    return Perplexity.of(torch.cat([batch_losses(model, tokens, batch) for batch in track(batches)]))


def batch_losses(model: PreTrainedModel, tokens: Tensor, windows: Sequence[Window]) -> Tensor:
    """−log p of every token that counts in `windows`, which are of one shape: float32 [count]."""
    rows, targets = stack(tokens, windows)
    return losses(predictions(model, rows, targets.shape[1]), targets).flatten()
