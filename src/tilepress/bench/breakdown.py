"""Where a model's time goes while it writes: linear layers, attention without them, and the rest."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

ATTENTION = "self_attn"


@dataclass(frozen=True)
class Breakdown:
    """Seconds of a step of decoding."""

    linear: float
    attention: float
    rest: float

    @property
    def total(self) -> float:
        return self.linear + self.attention + self.rest


class _Watch:
    """Adds up the time between the start and the end of each module that it is hooked to."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._starts: list[float] = []

    def start(self, *_: Any) -> None:
        self._starts.append(time.perf_counter())

    def stop(self, *_: Any) -> None:
        self.seconds += time.perf_counter() - self._starts.pop()


@torch.no_grad()
def decode_breakdown(model: Any, cache: Any, steps: int, token: int = 0) -> Breakdown:
    """Mean of `steps` steps, one token each, after what is in `cache`; the first of them does not count."""
    row = torch.full((1, 1), token)
    _step(model, cache, row)
    linear, attention, inside = _Watch(), _Watch(), _Watch()
    with _hooked(model, linear, attention, inside):
        start = time.perf_counter()
        for _ in range(steps):
            _step(model, cache, row)
        total = time.perf_counter() - start
    parts = (linear.seconds, attention.seconds - inside.seconds)
    return Breakdown(*(part / steps for part in (*parts, total - sum(parts))))


def _step(model: Any, cache: Any, row: Tensor) -> None:
    model(input_ids=row, past_key_values=cache)


@contextmanager
def _hooked(model: nn.Module, linear: _Watch, attention: _Watch, inside: _Watch) -> Iterator[None]:
    """`inside`: linear layers that are parts of attention."""
    handles = []
    for name, module in model.named_modules():
        watches = [attention] if name.endswith(f".{ATTENTION}") else []
        if isinstance(module, nn.Linear):
            watches += [linear, inside] if f".{ATTENTION}." in name else [linear]
        for watch in watches:
            handles += [module.register_forward_pre_hook(watch.start), module.register_forward_hook(watch.stop)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
