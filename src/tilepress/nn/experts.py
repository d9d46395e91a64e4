"""The experts of a mixture, each projection a linear layer of its own."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn


class PackedExperts(nn.Module):
    """Experts as transformers calls them, with `N.gate_up_proj` (or `N.up_proj`, without a gate) and `N.down_proj` of
    expert N as linear layers, packed or plain. Each of them is given the tokens that are routed to its expert alone.

    Args:
        plain: the module with all experts' weights in one parameter each. Its weights are not kept; what is between
            the projections is computed by it.
        up, down: the projections of each expert.
    """

    def __init__(self, plain: nn.Module, up: Sequence[nn.Module], down: Sequence[nn.Module]) -> None:
        super().__init__()
        self.up_name = up_name(plain)
        self.count = len(up)
        for number, layers in enumerate(zip(up, down, strict=True)):
            self.add_module(str(number), nn.ModuleDict(dict(zip((self.up_name, "down_proj"), layers, strict=True))))
        self.__dict__["plain"] = _emptied(plain)  # no part of this module: it has no state

    @property
    def layer_names(self) -> list[str]:
        return [f"{number}.{name}" for number in range(self.count) for name in (self.up_name, "down_proj")]

    def projections(self, name: str) -> list[Any]:
        """The layer called `name` of each expert."""
        return [self.get_submodule(f"{number}.{name}") for number in range(self.count)]

    def forward(
        self, hidden_states: Tensor, top_k_index: Tensor | None = None, top_k_weights: Tensor | None = None
    ) -> Tensor:
        """[tokens, hidden] from hidden states [tokens, hidden], and the numbers and weights [tokens, k] of the experts
        chosen for each. Without those, as in Llama 4: from [experts · tokens, hidden], all tokens of the first expert
        before those of the second, a token that an expert is not to see being zero there."""
        if top_k_index is None or top_k_weights is None:
            return self._each_its_own(hidden_states)
        outputs = hidden_states.new_zeros(top_k_index.numel(), hidden_states.shape[-1])
        weights = top_k_weights.reshape(-1, 1)
        for number, rows in _rows_of_experts(top_k_index.flatten(), self.count):
            x = hidden_states[rows // top_k_index.shape[-1]]
            outputs[rows] = (self._expert(number, x) * weights[rows]).to(outputs.dtype)
        return outputs.view(*top_k_index.shape, -1).sum(1)

    def _each_its_own(self, hidden_states: Tensor) -> Tensor:
        parts = hidden_states.reshape(self.count, -1, hidden_states.shape[-1])
        outputs = torch.zeros_like(parts)
        for number, x in enumerate(parts):
            rows = x.any(-1).nonzero().flatten()
            if len(rows):
                outputs[number, rows] = self._expert(number, x[rows])
        return outputs.view(-1, hidden_states.shape[-1])

    def _expert(self, number: int, x: Tensor) -> Tensor:
        layers: Any = self._modules[str(number)]
        y: Tensor = layers["down_proj"](self._between(layers[self.up_name](x)))
        return y

    def _between(self, y: Tensor) -> Tensor:
        plain: Any = self.plain
        if self.up_name == "up_proj":
            activated: Tensor = plain.act_fn(y)
        elif hasattr(plain, "_apply_gate"):
            activated = plain._apply_gate(y)
        else:
            gate, up = y.chunk(2, dim=-1)
            activated = up * plain.act_fn(gate)
        return activated

    def extra_repr(self) -> str:
        return f"{self.count} experts of {type(self.plain).__name__}"


def up_name(plain: nn.Module) -> str:
    """What the projections before the activation are called: with a gate, which is in the same matrix, or without."""
    return "gate_up_proj" if "gate_up_proj" in plain._parameters else "up_proj"


def _emptied(plain: nn.Module) -> nn.Module:
    """The module without its parameters."""
    empty = copy(plain)
    empty._parameters = dict.fromkeys(plain._parameters)
    return empty


def _rows_of_experts(chosen: Tensor, count: int) -> Iterator[tuple[int, Tensor]]:
    """Number of each expert that is chosen at all, and where; what is no number of an expert is left out."""
    order = chosen.argsort(stable=True)
    amounts = torch.bincount(chosen.clamp(max=count), minlength=count + 1)
    for number, rows in enumerate(order.split(amounts.tolist())[:count]):
        if len(rows):
            yield number, rows
