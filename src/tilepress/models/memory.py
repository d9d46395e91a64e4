"""What compression takes beside the model: at most three times its working set, a bound that tests measure.

The working set is what must be in memory for the largest piece of work. Without calibration that is one linear layer:
its weights in float32. With calibration it is a decoder layer, since its linear layers are given their inputs in one
run (or all that lies outside the decoder layers): their weights in float32, a Hessian in float32 for each size of
input where the recipe needs them, and the calibration inputs of that layer, twice where the dense stream is kept, too;
where scales of keys are learned, the scores of one sequence, too, each of which takes part four times. Three times:
what comes in, what goes out, and what is between.
"""

from torch import nn

from .blocks import REST, find_blocks, linear_layers, output_layer
from .recipe import Recipe

FLOAT32 = 4  # bytes


def working_set(model: nn.Module, recipe: Recipe) -> int:
    """Bytes. The model needs no weights: one on the meta device will do."""
    stages = _stages(model, recipe)
    if not recipe.needs_calibration:
        return max(_weights(layer) for layers in stages for layer in layers)
    return max(_calibrated(layers, recipe) for layers in stages) + _scores(model, recipe)


def _stages(model: nn.Module, recipe: Recipe) -> list[list[nn.Linear]]:
    """The linear layers of each stage that are compressed, where there are any."""
    blocks, dense_output = find_blocks(model), output_layer(model) if recipe.weights.lm_head == "keep" else None
    stages: dict[str, list[nn.Linear]] = {}
    for name, layer in linear_layers(model).items():
        if name != dense_output:
            stage = next((block for block in blocks if name.startswith(f"{block}.")), REST)
            stages.setdefault(stage, []).append(layer)
    return list(stages.values())


def _calibrated(layers: list[nn.Linear], recipe: Recipe) -> int:
    sizes = {layer.in_features for layer in layers}
    tokens = recipe.calibration.sequences * recipe.calibration.length
    hessians = sum(size**2 for size in sizes) if recipe.needs_hessian else 0
    streams = 2 if recipe.needs_dense_stream else 1
    return sum(map(_weights, layers)) + FLOAT32 * (hessians + streams * tokens * min(sizes))


def _scores(model: nn.Module, recipe: Recipe) -> int:
    if not recipe.folds_scales:
        return 0
    heads = int(getattr(getattr(model, "config", None), "num_attention_heads", 1))
    return 4 * FLOAT32 * heads * recipe.calibration.length**2


def _weights(layer: nn.Linear) -> int:
    return FLOAT32 * layer.weight.numel()
