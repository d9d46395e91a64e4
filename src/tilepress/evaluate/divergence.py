"""How far a model's predictions are from a reference model's, token by token."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from .estimate import Estimate
from .perplexity import Perplexity
from .scoring import checked, position_chunks, predictions, stack, target_losses
from .windows import Track, Windowing, plan

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True)
class Divergence:
    """A model against a reference on the same tokens.

    ratio: perplexity over the reference's, its error taken from the pairs. kl: Kullback–Leibler divergence of the
    model's distribution from the reference's, in nats; kl_percentiles: {per cent of tokens: what theirs stays within}.
    same_top: share of tokens for which both hold the same one most likely.
    """

    model: Perplexity
    reference: Perplexity
    ratio: Estimate
    kl: Estimate
    kl_percentiles: dict[float, float]
    same_top: Estimate


def divergence(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    tokens: Tensor,
    windowing: Windowing | None = None,
    track: Track = iter,
) -> Divergence:
    """Compare `model` with `reference` on `tokens` [count]. Logits of both are held for one batch of windows only."""
    batches = plan(len(tokens), windowing or Windowing(), model, reference)
    figures = []
    for batch in track(batches):
        rows, targets = stack(tokens, batch)
        scored = targets.shape[1]
        figures.append(_compare(predictions(model, rows, scored), predictions(reference, rows, scored), targets))
    return _summary(torch.cat(figures, dim=1))


def _compare(logits: Tensor, reference: Tensor, targets: Tensor) -> Tensor:
    """[4, tokens]: loss of the model, loss of the reference, divergence, whether the most likely token is the same."""
    if logits.shape != reference.shape:
        sizes = f"{logits.shape[-1]} and {reference.shape[-1]}"
        raise ValueError(f"the two models have vocabularies of {sizes} tokens, so their predictions cannot be compared")
    reference, targets = reference.to(logits.device), targets.to(logits.device)
    parts = [
        _compare_chunk(logits[:, part].float(), reference[:, part].float(), targets[:, part])
        for part in position_chunks(logits)
    ]
    return checked(torch.cat(parts, dim=2).cpu()).flatten(1)


def _compare_chunk(q: Tensor, p: Tensor, targets: Tensor) -> Tensor:
    """As above, [4, batch, count], of logits `q` of the model and `p` of the reference."""
    log_sum_p = p.logsumexp(-1)
    kl = ((p - log_sum_p[..., None]).exp() * (p - q)).sum(-1) - (log_sum_p - q.logsumexp(-1))
    same = q.argmax(-1) == p.argmax(-1)
    return torch.stack([target_losses(q, targets), target_losses(p, targets), kl, same.float()])


def _summary(figures: Tensor) -> Divergence:
    model, reference, kl, same = figures.double()
    percentiles = np.percentile(kl.numpy(), PERCENTILES).tolist()
    return Divergence(
        model=Perplexity.of(model),
        reference=Perplexity.of(reference),
        ratio=Estimate.of(model - reference).exp(),
        kl=Estimate.of(kl),
        kl_percentiles=dict(zip(PERCENTILES, percentiles, strict=True)),
        same_top=Estimate.of(same),
    )
