"""Layers that see only some of the tokens: those of a mixture's experts."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import nn

from ..compression import InputStatistics, WeightPlan
from ..nn import PackedExperts

FEWEST = 16  # tokens for norms of inputs


def routed_layers(model: nn.Module) -> set[str]:
    """Names of the layers of all experts."""
    mixtures = [(name, module) for name, module in model.named_modules() if isinstance(module, PackedExperts)]
    return {f"{name}.{layer}" for name, experts in mixtures for layer in experts.layer_names}


def sufficient(
    model: nn.Module,
    layers: Mapping[str, nn.Linear],
    statistics: Mapping[str, InputStatistics],
    plan: Callable[[str], WeightPlan],
) -> dict[str, InputStatistics]:
    """Those of the `statistics` that are of enough tokens, or of layers that see all of them."""
    routed = routed_layers(model)
    return {
        name: seen
        for name, seen in statistics.items()
        if name not in routed or seen.count >= fewest_tokens(layers[name], plan(name))
    }


def fewest_tokens(layer: nn.Linear, plan: WeightPlan) -> int:
    """Fewer tokens than this and the layer is better rounded without their statistics.

    A Hessian of fewer tokens than inputs has no inverse but for its damping, and what is compensated for is what those
    few tokens see. Tried with 4-bit GPTQ on random layers of 256 and 512 inputs whose variances fall off: the error on
    other tokens is 0.96 to 1.24 times that of rounding to nearest with up to half as many tokens as inputs, 0.53 to
    0.87 times with as many.
    """
    return layer.in_features if plan.needs_hessian else FEWEST


def without_statistics(plan: WeightPlan) -> WeightPlan:
    """For a layer that no calibration input reaches, an expert that is never chosen, say: what needs none."""
    return replace(plan, prune="magnitude", quantize="rtn")
