"""What a model predicts, and what its predictions cost, a few positions at a time."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..models.beginning import begun
from .engine_model import EngineModel
from .windows import Window

# Logits of a window are large (2048 × 49152 in float32: 400 MB), so nothing of their size is made beside them.
CHUNK_BYTES = 16 << 20


def predictions(
    model: PreTrainedModel | EngineModel, tokens: Tensor, scored: int, mask: Tensor | None = None
) -> Tensor:
    """Logits [batch, scored, vocabulary] for the last `scored` of `tokens` [batch, count], each from those before it.

    mask: [batch, count], 0 where a token is only padding, which comes last; what is predicted there has no meaning.
    """
    if isinstance(model, EngineModel):
        return model.predictions(tokens, scored)
    options: dict[str, Any] = {} if mask is None else {"attention_mask": mask.to(model.device)}
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = scored + 1
    with torch.inference_mode():
        logits: Tensor = model(input_ids=tokens.to(model.device), **options).logits
    return logits[:, -scored - 1 : -1]


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """−log p of `targets` [batch, count] in nats, float32; logits: [batch, count, vocabulary]."""
    targets = targets.to(logits.device)
    parts = [target_losses(logits[:, part].float(), targets[:, part]) for part in position_chunks(logits)]
    return checked(torch.cat(parts, dim=1).cpu())


def target_losses(logits: Tensor, targets: Tensor) -> Tensor:
    # logsumexp sums in pairs; log_softmax adds one by one, which costs 1e-5 on a vocabulary of 49152.
    return logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]


def position_chunks(logits: Tensor) -> Iterator[slice]:
    """Parts of the positions of `logits` [batch, count, vocabulary]: CHUNK_BYTES of float32, or one position."""
    batch, count, vocabulary = logits.shape
    size = max(1, CHUNK_BYTES // (4 * batch * vocabulary))
    return (slice(start, start + size) for start in range(0, count, size))


def stack(tokens: Tensor, windows: Sequence[Window]) -> tuple[Tensor, Tensor]:
    """(tokens of each window [batch, length], those of them that count [batch, scored])."""
    rows = begun(torch.stack([tokens[window.start : window.stop] for window in windows]), windows[0].begin)
    return rows, rows[:, -windows[0].scored :]


def checked(figures: Tensor) -> Tensor:
    if figures.isnan().any():
        raise ValueError("the model's output is not a number (NaN) on this text; nothing can be said of its quality")
    return figures
