"""Weights of several compressed layers, trained together by the gradients of a loss that looks at what they compute.

Layers are ordinary ones whose weights are, at every step, the rounded ones. Adam (Kingma & Ba 2015) moves what
`TrainedWeight` has, and norms and biases with it, by shares of their size; the rate falls to zero in a line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..compression import CompressedWeight
from ..compression.threads import in_order, run_all
from ..compression.trained import TrainedWeight
from ..formats import WeightFormat
from .device import rough_products

BATCH = 2  # windows of a step, computed side by side
BETAS = (0.9, 0.95)  # few steps, so a short memory
Loss = Callable[[], Tensor]


@dataclass(frozen=True)
class Trainable:
    """`layer` computes with the weights that `start` stands for, as codes of `format`."""

    layer: nn.Linear
    start: CompressedWeight
    format: WeightFormat


class Training:
    """`vectors`: further parameters, norms and biases, with the type that each is stored in. `steps` in all, of which
    `done` are; `rate` is that of the first step."""

    def __init__(
        self,
        layers: Mapping[str, Trainable],
        vectors: Mapping[str, tuple[nn.Parameter, torch.dtype]],
        steps: int,
        rate: float,
    ) -> None:
        for tensor in (*(one.layer.weight for one in layers.values()), *(vector for vector, _ in vectors.values())):
            if tensor.is_inference():
                raise ValueError("weights made in torch.inference_mode() cannot be trained: load the model outside it")
        self.weights = {name: TrainedWeight(one.start, one.format) for name, one in layers.items()}
        self.steps, self.done = steps, 0
        self._layers = {name: one.layer for name, one in layers.items()}
        self._vectors = {name: vector for name, (vector, _) in vectors.items()}
        self._types = {name: dtype for name, (_, dtype) in vectors.items()}
        self._exact = {name: vector.detach().clone() for name, vector in self._vectors.items()}
        self._optimizers = {name: _adam(list(one.parameters.values()), rate) for name, one in self.weights.items()}
        for name, exact in self._exact.items():
            size = float(exact.square().mean().sqrt())
            self._optimizers[name] = _adam([exact], rate * size)
        self._rates = {name: one.param_groups[0]["lr"] for name, one in self._optimizers.items()}
        self.show()

    @torch.no_grad()
    def show(self) -> None:
        """Let the layers compute with the weights as they are now."""
        run_all(self._show, self._optimizers)

    def step(self, losses: Sequence[Loss]) -> None:
        """One step down the mean of `losses`, which are computed side by side."""
        with rough_products():
            gradients = self._gradients(losses)
        run_all(lambda item: self._descend(*item), gradients.items())
        self.done += 1

    def compressed(self) -> dict[str, CompressedWeight]:
        return {name: weight.compressed() for name, weight in self.weights.items()}

    def vectors(self) -> dict[str, Tensor]:
        """Copies of the further parameters as they are stored."""
        return {name: vector.detach().clone() for name, vector in self._vectors.items()}

    def set_vectors(self, vectors: Mapping[str, Tensor]) -> None:
        """Let the model compute with these from now on, and train no more."""
        for name, vector in vectors.items():
            self._vectors[name].data = vector

    def state(self) -> dict[str, Tensor]:
        """All that a later run needs to go on to the same bits."""
        tensors = {"done": torch.tensor(self.done)}
        for name, optimizer in self._optimizers.items():
            for key, parameter in zip(self._keys(name), optimizer.param_groups[0]["params"], strict=True):
                tensors[f"{name}/{key}"] = parameter
                for moment, value in optimizer.state[parameter].items():
                    tensors[f"{name}/{key}/{moment}"] = value
        for name, weight in self.weights.items():
            tensors |= {f"{name}/constant/{key}": value for key, value in weight.constants.items()}
        return tensors

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a `state`."""
        self.done = int(state["done"])
        for name, optimizer in self._optimizers.items():
            for key, parameter in zip(self._keys(name), optimizer.param_groups[0]["params"], strict=True):
                parameter.copy_(state[f"{name}/{key}"])
                start = f"{name}/{key}/"
                moments = {k.removeprefix(start): v.clone() for k, v in state.items() if k.startswith(start)}
                on_device = {k: v if k == "step" else v.to(parameter.device) for k, v in moments.items()}
                optimizer.state[parameter].update(on_device)
        for name, weight in self.weights.items():
            for key, value in weight.constants.items():
                value.copy_(state[f"{name}/constant/{key}"])
        self.show()

    def _keys(self, name: str) -> list[str]:
        return list(self.weights[name].parameters) if name in self.weights else ["vector"]

    def _gradients(self, losses: Sequence[Loss]) -> dict[str, Tensor | None]:
        """Of the mean of `losses`, by what the layers compute with."""
        leaves = {name: layer.weight for name, layer in self._layers.items()} | self._vectors
        for leaf in leaves.values():
            leaf.requires_grad_()

        def backward(loss: Loss) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(loss() / len(losses), list(leaves.values()), allow_unused=True)

        sums: list[Tensor | None] = [None] * len(leaves)
        with torch.enable_grad():
            for gradients in in_order(backward, losses):
                sums = [_added(*pair) for pair in zip(sums, gradients, strict=True)]
        for leaf in leaves.values():
            leaf.requires_grad_(False)
        return dict(zip(leaves, sums, strict=True))

    def _show(self, name: str) -> None:
        if name in self.weights:
            self._layers[name].weight.data = self.weights[name].rounded()
        else:
            exact = self._exact[name]
            self._vectors[name].data = exact.to(self._types[name]).to(exact.dtype)

    @torch.no_grad()
    def _descend(self, name: str, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        optimizer = self._optimizers[name]
        parameters: list[Tensor] = optimizer.param_groups[0]["params"]
        found = self.weights[name].gradients(gradient) if name in self.weights else {"vector": gradient}
        for key, parameter in zip(self._keys(name), parameters, strict=True):
            parameter.grad = found[key]
        optimizer.param_groups[0]["lr"] = self._rates[name] * (1 - self.done / self.steps)
        optimizer.step()
        for parameter in parameters:
            parameter.grad = None
        self._show(name)


def _adam(parameters: list[Tensor], rate: float) -> torch.optim.Adam:
    on_gpu = parameters[0].is_cuda  # where each small operation takes a call
    return torch.optim.Adam(parameters, lr=rate, betas=BETAS, foreach=False, fused=on_gpu)


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
