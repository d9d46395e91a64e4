"""Layers and calibration inputs that several tests run through."""

import torch
from torch import Tensor

from tilepress.compression import InputStatistics


def layer(neurons: int, inputs: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(neurons, inputs, generator=generator) * 0.05


def calibration(inputs: int, tokens: int = 512, seed: int = 1) -> Tensor:
    """Inputs [tokens, inputs] that are correlated and of uneven size, as hidden states are."""
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randn(tokens, inputs, generator=generator)
    mixing = torch.randn(inputs, inputs, generator=generator) / inputs**0.5
    sizes = torch.exp(0.7 * torch.randn(inputs, generator=generator))
    return (sources @ mixing + 0.3 * sources) * sizes


def statistics(inputs: int, hessian: bool = True, seed: int = 1) -> InputStatistics:
    gathered = InputStatistics(inputs, hessian)
    gathered.add(calibration(inputs, seed=seed))
    return gathered
