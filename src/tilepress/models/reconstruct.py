"""A block's compressed layers tuned together, so that it gives what it gave in the model as it came.

BRECQ (Li et al. 2021) and AutoRound (Cheng et al. 2023), for rounding and sparsity alike: the block is given what the
compressed blocks before it give, and is to give what the dense block gave in the dense stream, so it makes up for
errors before it, too. The last of the windows are not trained on but judge: a block keeps the best state they have
seen, the first included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..compression import CompressedWeight
from .calibration import Run
from .training import BATCH, Training

RATE = 0.005  # of the first step, in root mean squares of a row's weights
JUDGED = 4  # times that windows judge after the start
JUDGES = 8  # windows at most


@dataclass(frozen=True)
class Reconstructed:
    """`best`: the weights of the best state seen, none where nothing was better than the first. `before` and `after`:
    the loss of the windows that judge, of the first state and of the best."""

    best: dict[str, CompressedWeight]
    before: float
    after: float


def reconstruct(training: Training, run: Callable[[int], Run], targets: Tensor, seed: int) -> Reconstructed:
    """Train a block for all steps of `training`; its norms and biases are left as they were in the best state.

    run: the block on a window, by its number. targets: [windows, ...], what it is to give.
    """
    learned, judges = divided(len(targets))
    losses = Losses(run, targets)
    before = after = losses.mean(judges)
    best, vectors = dict[str, CompressedWeight](), training.vectors()
    order = shuffled(learned, training.steps * BATCH, seed)
    pause = max(1, -(-training.steps // JUDGED))
    while training.done < training.steps:
        batch = order[training.done * BATCH :][:BATCH]
        training.step([losses.of(window) for window in batch])
        if training.done % pause == 0 or training.done == training.steps:
            loss = losses.mean(judges)
            if loss < after:
                after, best, vectors = loss, training.compressed(), training.vectors()
    training.set_vectors(vectors)
    return Reconstructed(best, before, after)


class Losses:
    """`relative_error` of a block's outputs, by the number of the window."""

    def __init__(self, runs: Callable[[int], Run], targets: Tensor) -> None:
        self._runs, self._targets = runs, targets

    def of(self, window: int) -> Callable[[], Tensor]:
        """To be called wherever it is to be computed; the block's arguments are found here."""
        run, target = self._runs(window), self._targets[window]

        def loss() -> Tensor:
            return relative_error(run(), target)

        return loss

    @torch.no_grad()
    def mean(self, windows: list[int]) -> float:
        return sum(float(self.of(window)()) for window in windows) / len(windows)


def relative_error(output: Tensor, target: Tensor) -> Tensor:
    """Squared error of a block's output as a share of the target's power, each token by itself: the norms that come
    next divide by it, and a few tokens have outputs a thousand times larger than the rest."""
    wanted = target.to(output.device)
    power = wanted.square().sum(-1).clamp(min=torch.finfo(wanted.dtype).tiny)
    return ((output - wanted).square().sum(-1) / power).mean()


def divided(windows: int) -> tuple[list[int], list[int]]:
    """The windows to train on, and those that judge: a quarter, if there are four; else all do both."""
    judges = min(JUDGES, windows // 4)
    every = list(range(windows))
    return (every[:-judges], every[-judges:]) if judges else (every, every)


def trainable_vectors(
    module: nn.Module, types: Mapping[str, torch.dtype]
) -> dict[str, tuple[nn.Parameter, torch.dtype]]:
    """Norms' weights and biases, with the types that they are stored in, by the name in `module`."""
    return {name: (one, types[name]) for name, one in module.named_parameters() if one.ndim == 1}


def shuffled(windows: list[int], count: int, seed: int) -> list[int]:
    """`count` of the windows, each as often as any other, give or take one."""
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = []
    while len(order) < count:
        order += [windows[place] for place in torch.randperm(len(windows), generator=generator).tolist()]
    return order[:count]
