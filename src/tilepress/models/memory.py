"""What compression takes beside the model: at most three times its working set, a bound that tests measure.

The working set is what must be in memory for the largest piece of work. Without calibration that is one linear layer:
its weights in float32. With calibration it is a decoder layer, since its linear layers are given their inputs in one
run (or all that lies outside the decoder layers): their weights in float32, a Hessian in float32 for each size of
input and one for each layer of an expert where the recipe needs them (and a matrix as large where targets are the
dense model's), and the calibration inputs of that layer, twice where the dense stream is kept, too; where scales of
keys are learned, the scores of one sequence, too, each of which takes part four times. Where a decoder layer is trained
afterwards (`reconstruct`), its weights count four times, for what is trained, its gradient and Adam's two moments, and
inputs and outputs of its linear layers on the windows of one step are kept. The embedding is a piece of its own: its
weights in float32. Three times: what comes in, what goes out, and what is between.

Healing has a working set of its own, since it takes the whole model: all parameters in float32, compressed and dense,
three more numbers for each packed weight, and for the windows of one step inputs and outputs of all linear layers and
four times the logits.
"""

from collections.abc import Collection

from torch import nn

from .blocks import REST, find_blocks, is_tied, linear_layers, output_layer, packable_embedding
from .recipe import KEEP, Recipe
from .routing import routed_layers
from .training import BATCH

FLOAT32 = 4  # bytes


def working_set(model: nn.Module, recipe: Recipe) -> int:
    """Bytes. The model, in linear form, needs no weights: one on the meta device will do."""
    stages, table, routed = _stages(model, recipe), _table(model, recipe), routed_layers(model)
    if not recipe.needs_calibration:
        return max(table, *(_weights(layer) for layers in stages for layer in layers.values()))
    return max(table, max(_calibrated(layers, routed, recipe) for layers in stages) + _scores(model, recipe))


def _table(model: nn.Module, recipe: Recipe) -> int:
    """Of the embedding, where that is packed."""
    found = packable_embedding(model)
    if recipe.plan_of_embedding is None or found is None:
        return 0
    return FLOAT32 * found[1].get_parameter("weight").numel()


def _stages(model: nn.Module, recipe: Recipe) -> list[dict[str, nn.Linear]]:
    """The linear layers of each stage that are compressed, where there are any."""
    blocks, output = find_blocks(model), output_layer(model)
    is_left = recipe.weights.lm_head == KEEP or recipe.ties(is_tied(model))
    stages: dict[str, dict[str, nn.Linear]] = {}
    for name, layer in linear_layers(model).items():
        if name != output or not is_left:
            stage = next((block for block in blocks if name.startswith(f"{block}.")), REST)
            stages.setdefault(stage, {})[name] = layer
    return list(stages.values())


def _calibrated(layers: dict[str, nn.Linear], routed: Collection[str], recipe: Recipe) -> int:
    sizes = {layer.in_features for name, layer in layers.items() if name not in routed}
    apart = [layer.in_features for name, layer in layers.items() if name in routed]
    tokens = recipe.calibration.sequences * recipe.calibration.length
    hessians = sum(size**2 for size in (*sizes, *apart)) * (recipe.needs_hessian + recipe.needs_drift)
    streams = 2 if recipe.needs_dense_stream else 1
    trained = recipe.weights.reconstruct > 0
    weights = sum(map(_weights, layers.values())) * (4 if trained else 1)
    kept = _kept(list(layers.values()), recipe) if trained else 0
    return weights + kept + FLOAT32 * (hessians + streams * tokens * min((*sizes, *apart)))


def healing_set(model: nn.Module, recipe: Recipe) -> int:
    """Bytes of the working set of `heal`, on a model that is not compressed yet."""
    layers = [layer for stage in _stages(model, recipe) for layer in stage.values()]
    every, packed = sum(one.numel() for one in model.parameters()), sum(map(_weights, layers))
    vocabulary = int(getattr(getattr(model, "config", None), "vocab_size", 0))
    logits = 4 * FLOAT32 * BATCH * recipe.calibration.length * vocabulary
    return 2 * FLOAT32 * every + 3 * packed + _kept(layers, recipe) + logits


def _kept(layers: list[nn.Linear], recipe: Recipe) -> int:
    """Inputs and outputs of layers on the windows of one step of training."""
    sizes = sum(layer.in_features + layer.out_features for layer in layers)
    return FLOAT32 * BATCH * recipe.calibration.length * sizes


def _scores(model: nn.Module, recipe: Recipe) -> int:
    if not recipe.folds_scales:
        return 0
    heads = int(getattr(getattr(model, "config", None), "num_attention_heads", 1))
    return 4 * FLOAT32 * heads * recipe.calibration.length**2


def _weights(layer: nn.Linear) -> int:
    return FLOAT32 * layer.weight.numel()
