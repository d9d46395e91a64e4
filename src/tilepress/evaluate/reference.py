"""What the measures mean, token by token: one sequence, no batch, no padding, no chunks; slow.

Each token's logits come from a call on the tokens before it alone.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from .windows import Window


def next_logits(model: PreTrainedModel, context: Sequence[int]) -> Tensor:
    """Logits [vocabulary] of the token after `context`, float64."""
    with torch.no_grad():
        logits: Tensor = model(input_ids=torch.tensor([list(context)])).logits
    return logits[0, -1].double()


def contexts(tokens: Sequence[int], windows: Iterable[Window]) -> list[tuple[Sequence[int], int]]:
    """(tokens before it in its window, the token) for each one that counts."""
    return [
        ([*before(window), *tokens[window.start : position]], tokens[position])
        for window in windows
        for position in range(window.stop - window.scored, window.stop)
    ]


def before(window: Window) -> list[int]:
    """What the window has before its part of the text."""
    return [] if window.begin is None else [window.begin]


def losses(model: PreTrainedModel, tokens: Sequence[int], windows: Iterable[Window]) -> list[float]:
    """−log p of each token that counts, in nats."""
    return [
        functional.cross_entropy(next_logits(model, context), torch.tensor(token)).item()
        for context, token in contexts(tokens, windows)
    ]


def divergences(
    model: PreTrainedModel, reference: PreTrainedModel, tokens: Sequence[int], windows: Iterable[Window]
) -> list[float]:
    """Σ p log(p / q) at each token that counts; p: the reference's distribution, q: the model's."""

    def one(context: Sequence[int]) -> float:
        q, p = next_logits(model, context).softmax(-1), next_logits(reference, context).softmax(-1)
        return (p * (p / q).log()).sum().item()

    return [one(context) for context, _ in contexts(tokens, windows)]


def log_likelihood(model: PreTrainedModel, tokens: Sequence[int], start: int) -> float:
    """log p of the tokens from `start` on after those before."""
    return -sum(losses(model, tokens, [Window(0, len(tokens), len(tokens) - start)]))
