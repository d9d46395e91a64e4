"""A recipe with a format and a density for each layer, within a budget of bytes."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..compression.allocate import Allocation, Candidate, allocate
from .checkpoint_checks import NOTHING, Allowed
from .choices import Budget, Choice, recipes_of
from .compress import describe, read_windows
from .compress_to_folder import open_model
from .device import find_device
from .left_dense import left_dense
from .loading import Announce, is_compressed, load_tokenizer, model_folder, read_config, say
from .measured_losses import MeasuredLosses
from .packed_size import rest_bytes, unit_bytes
from .precision import fingerprint
from .quantized import is_readable, open_checkpoint
from .recipe import Override, Recipe
from .sensitivity import Sensitivity, Unit
from .shards import Shards
from .storage import Progress
from .streaming import StreamedStorage

METHODS = ("prune", "prune_scope", "quantize", "clip_search", "column_order", "refit")


@dataclass(frozen=True)
class Measured:
    """`sizes`, `losses`: of each unit, bytes and loss of each of `choices`. `rest`: bytes of all that is in no unit."""

    units: list[Unit]
    choices: list[Choice]
    sizes: list[list[int]]
    losses: list[list[float]]
    rest: int

    @property
    def weights(self) -> int:
        """Of all units."""
        return sum(unit.weights for unit in self.units)

    def uniform(self, choice: int) -> Candidate:
        """What all layers together take and lose with that choice."""
        return Candidate(sum(own[choice] for own in self.sizes), math.fsum(own[choice] for own in self.losses))

    def allocate(self, budget: Budget) -> Allocation:
        """One choice for each unit; ValueError where the smallest ones take more than the budget."""
        layers = [list(map(Candidate, *own)) for own in zip(self.sizes, self.losses, strict=True)]
        return allocate(layers, budget.nbytes(sum(map(min, self.sizes)), self.weights, self.rest))

    def recipe(self, base: Recipe, allocation: Allocation) -> Recipe:
        """`base` with an override for each unit whose choice is not its own."""
        own = base.weights
        chosen = [self.choices[index] for index in allocation.chosen]
        overrides = tuple(
            Override(
                match=unit.match,
                format=None if choice.format == own.format else choice.format,
                density=None if choice.density == own.density else choice.density,
            )
            for unit, choice in zip(self.units, chosen, strict=True)
            if choice != Choice(own.format, own.density)
        )
        return base.model_copy(update={"weights": base.weights.model_copy(update={"override": overrides})})


def measure_choices(
    name: str,
    recipe: Recipe,
    choices: Sequence[Choice],
    budget: Budget,
    results: Path,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
    device: str = "cpu",
    allowed: Allowed = NOTHING,
    announce: Announce = say,
) -> Measured:
    """Bytes and losses of all layers in the blocks of the model called `name`, see `model_folder` and `sensitivity`.

    `recipe` says how weights are compressed, with what text layers are measured, and what becomes of all other layers.
    A `budget` that is too small or too large is refused before anything is measured. `results`: the file of losses; the
    same call goes on from it, and another choice measures only what is new.
    """
    recipes, place = recipes_of(choices, recipe), find_device(device)
    folder = model_folder(name, announce, trust_remote_code=allowed.trust_remote_code)
    if is_compressed(folder):
        raise ValueError(f"{name} is compressed already: measure the model it was made from")
    read_config(folder, allowed, dequantised=is_readable(folder), any_head=True)
    windows, shards = read_windows(recipe, load_tokenizer(folder, allowed)), open_checkpoint(folder)
    model, source = open_model(folder, shards, allowed, announce)
    left_dense(model, recipe)
    plans = {str(choice): one.plan("") for choice, one in recipes.items()}
    calibrated = any(one.needs_calibration for one in recipes.values())
    storage = StreamedStorage(model, source)
    sensitivity = Sensitivity(model, plans, windows, storage, calibrated=calibrated, device=place)
    units = [unit for own in sensitivity.units.values() for unit in own]
    sizes = [[unit_bytes(unit, plan) for plan in plans.values()] for unit in units]
    rest = rest_bytes(model, recipe, sensitivity.others(storage.itemsize))
    budget.check(sum(map(min, sizes)), sum(map(max, sizes)), sum(unit.weights for unit in units), rest)
    known = MeasuredLosses(results, _job(folder, shards, recipe, windows, place, calibrated))
    sensitivity.run(known, progress)
    losses = [[known.of(unit, choice) for choice in plans] for unit in units]
    return Measured(units, list(recipes), sizes, losses, rest_bytes(model, recipe, known.others))


def _job(
    folder: Path, shards: Shards, recipe: Recipe, windows: Tensor, device: torch.device, calibrated: bool
) -> dict[str, Any]:
    """All that losses depend on; not the budget, nor which choices there are."""
    described = describe([], recipe)
    return {
        "device": device.type,
        "config": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest(),
        "weights": shards.fingerprint(),
        "methods": {key: described.recipe["weights"][key] for key in METHODS},
        "calibrated": calibrated,
        "versions": described.versions,
        "windows": fingerprint(windows),
    }
