"""Healing: a whole compressed model trained to give the dense model's probabilities.

Distillation (Hinton et al. 2015) on the calibration text: kept weights, scales, norms and biases move; masks and
formats stay. The loss is the divergence from the dense model's next-token distributions. The last windows judge, see
`reconstruct`; a model that they find no better stays as it was.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .._files import replacing
from ..compression import CompressedWeight
from ..compression.threads import one_by_one, one_thread
from ..formats import WeightFormat
from ..nn import PackedLinear, TiedLinear
from ..nn.emulation import round_inputs, roundings
from ..tiles import pack_codes, unpack_codes
from .calibration import in_float32
from .device import CPU, moved
from .linear_form import replace_layer
from .publish import MAKE_ROOM, OutputError
from .reconstruct import divided, shuffled, trainable_vectors
from .registration import packed_layers, packed_modules, unpack_layers
from .storage import Progress
from .training import BATCH, Trainable, Training

RATE = 0.0005  # of the first step, in root mean squares of a row's weights
PAUSE = 20  # steps from one checkpoint to the next


@dataclass(frozen=True)
class Healed:
    """The mean divergence of the windows that judge, in nats per token."""

    before: float
    after: float


@dataclass(frozen=True)
class Checkpoint:
    """The training's state in a file, so that a later run goes on to the same bits; nowhere where there is no path."""

    path: Path | None = None

    def read(self) -> dict[str, Tensor] | None:
        if self.path is None or not self.path.exists():
            return None
        return load_file(self.path)

    def write(self, state: Mapping[str, Tensor]) -> None:
        if self.path is None:
            return
        try:
            with replacing(self.path) as made:
                save_file({name: tensor.contiguous() for name, tensor in state.items()}, made)
        except (SafetensorError, OSError) as error:
            raise OutputError(f"{self.path} cannot be written: {error}: {MAKE_ROOM}") from error


NOWHERE = Checkpoint()


def heal(
    model: Any,
    dense: nn.Module,
    windows: Tensor,
    steps: int,
    seed: int,
    *,
    types: Mapping[str, torch.dtype] | None = None,
    device: torch.device = CPU,
    checkpoint: Checkpoint = NOWHERE,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Healed:
    """Train the packed layers of `model`, and its norms and biases, in place; not an output layer that takes the
    embedding's matrix.

    dense: what it was made from. windows: [sequences, length] of tokens. types: in which norms and biases are stored,
    if not in those that they have here. device: where both models are computed; `model` is on the CPU again at the end.
    """
    packed = dict(packed_modules(model))
    layers = {name: layer for name, layer in packed_layers(model) if not isinstance(layer, TiedLinear)}
    types = _types(model, layers) | dict(types or {})
    starts = {name: _weight_of(layer) for name, layer in layers.items()}
    unpack_layers(model)
    alone = nullcontext() if device == CPU else one_by_one()
    with (
        torch.inference_mode(False), torch.no_grad(), one_thread(), alone,
        moved(model, device), moved(dense, device), in_float32(model), in_float32(dense),
    ):  # fmt: skip
        trained = {
            name: Trainable(model.get_submodule(name), starts[name].to(device), _format(layers[name]))
            for name in layers
        }
        training = Training(trained, trainable_vectors(model, types), steps, RATE)
        with round_inputs(model, roundings({name: layer.activations for name, layer in layers.items()})):
            healed = _train(training, Divergence(model, dense, windows), seed, checkpoint, progress)
        best = training.compressed() if healed.after < healed.before else starts
    for name, layer in layers.items():
        bias = model.get_submodule(name).bias
        bias = None if bias is None else bias.to(types[f"{name}.bias"])
        weight = best[name].to(CPU)
        matrix = pack_codes(weight.quantized, _format(layer), mask=weight.mask)
        packed[name] = PackedLinear(matrix, bias, layer.activations)
    for name, module in packed.items():
        replace_layer(model, name, module)
    return healed


class Divergence:
    """KL divergence of the dense model's distributions from the model's, nats per token, window by window."""

    def __init__(self, model: nn.Module, dense: nn.Module, windows: Tensor) -> None:
        self._model, self._dense, self.windows = model, dense, windows.to(next(dense.parameters()).device)

    def of(self, window: int) -> Callable[[], Tensor]:
        return partial(self._loss, self.windows[window : window + 1])

    @torch.no_grad()
    def mean(self, windows: list[int]) -> float:
        return sum(float(self.of(window)()) for window in windows) / len(windows)

    def _loss(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = _logits(self._dense, tokens).log_softmax(-1)
        given = _logits(self._model, tokens).log_softmax(-1)
        return torch.nn.functional.kl_div(given, wanted, reduction="batchmean", log_target=True) / tokens.shape[1]


def _train(
    training: Training,
    divergence: Divergence,
    seed: int,
    checkpoint: Checkpoint,
    progress: Callable[[Progress], None],
) -> Healed:
    learned, judges = divided(len(divergence.windows))
    vectors, saved = training.vectors(), checkpoint.read()
    if saved is not None:
        training.load(saved)
    before = divergence.mean(judges) if saved is None else float(saved["before"])
    order = shuffled(learned, training.steps * BATCH, seed)
    start, begun = time.monotonic(), training.done
    while training.done < training.steps:
        training.step([divergence.of(window) for window in order[training.done * BATCH :][:BATCH]])
        if training.done % PAUSE == 0 or training.done == training.steps:
            checkpoint.write(training.state() | {"before": torch.tensor(before, dtype=torch.float64)})
        left = (time.monotonic() - start) / (training.done - begun) * (training.steps - training.done)
        progress(Progress(training.done, training.steps, left, "healing"))
    after = divergence.mean(judges)
    if after >= before:
        training.set_vectors(vectors)
    return Healed(before, after)


def _logits(model: Any, tokens: Tensor) -> Tensor:
    options = {"use_cache": False} if hasattr(model, "config") else {}
    output = model(tokens, **options)
    logits: Tensor = getattr(output, "logits", output)
    return logits


def _types(model: nn.Module, layers: Mapping[str, PackedLinear]) -> dict[str, torch.dtype]:
    types = {name: one.dtype for name, one in model.named_parameters()}
    return types | {f"{name}.bias": layer.bias.dtype for name, layer in layers.items() if layer.bias is not None}


def _weight_of(layer: PackedLinear) -> CompressedWeight:
    assert layer.matrix is not None
    quantized, mask = unpack_codes(layer.matrix)
    return CompressedWeight(quantized, mask, nan)


def _format(layer: PackedLinear) -> WeightFormat:
    assert layer.matrix is not None
    return layer.matrix.format
