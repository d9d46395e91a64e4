"""Gradients of results that autograd cannot see through."""

from typing import Any

import torch
from torch import Tensor


def straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, to the bit, with the gradient of `x`: rounding counts as none."""
    y: Tensor = _StraightThrough.apply(x, rounded)  # type: ignore[no-untyped-call, unused-ignore]
    return y


def without_gradient(out: Tensor, inputs: tuple[Tensor, ...], what: str) -> Tensor:
    """`out`, computed from `inputs` by `what`; backward() raises RuntimeError where one of them requires a gradient,
    instead of going on without it."""
    if torch.is_grad_enabled() and any(one.requires_grad for one in inputs):
        out = _NoGradient.apply(what, out, *inputs)  # type: ignore[no-untyped-call, unused-ignore]
    return out


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rounded: Tensor) -> Tensor:
        return rounded.view_as(rounded)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override, unused-ignore]
        return gradient, None


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: str, out: Tensor, *inputs: Tensor) -> Tensor:
        ctx.what = what
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise RuntimeError(f"{ctx.what} has no gradient: to train, run the model without it and with use_cache=False")
