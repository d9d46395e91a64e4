"""What a scheme says of one linear layer: which tensors it is stored in, and what weights they stand for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...formats import Quantized, WeightFormat, dequantize
from ..embedded import ModelUnavailableError
from ..shards import Stored

AGAIN = "fetch the model again"
FLOATS = ("F16", "BF16", "F32")


@dataclass(frozen=True, eq=False)
class Held:
    """Weights that a format of ours holds to the bit."""

    format: WeightFormat
    quantized: Quantized

    def dense(self) -> Tensor:
        """float32 [neurons, inputs]."""
        return dequantize(self.quantized, self.format)


@dataclass(frozen=True, eq=False)
class Unheld:
    """Weights (float32 [neurons, inputs]) on a grid that none of our formats has; `nearest` is to round them to."""

    weight: Tensor
    why: str
    nearest: WeightFormat

    def dense(self) -> Tensor:
        return self.weight


SourceWeight = Held | Unheld


@dataclass(frozen=True)
class QuantizedLayer:
    """`shape`: [neurons, inputs]. `parts`: the names in the files of what `read` takes, by the name of the part."""

    shape: tuple[int, int]
    parts: Mapping[str, str]
    read: Callable[[Mapping[str, Tensor]], SourceWeight]


@dataclass(frozen=True)
class QuantizedExperts:
    """Layers of one projection of `count` experts, each part in one tensor for all, which has the experts before its
    other dimensions. `layer`: what `read` takes and gives for one of them."""

    count: int
    layer: QuantizedLayer

    @property
    def shape(self) -> tuple[int, int, int]:
        """[experts, inputs, neurons]: as the model has the weights, transposed."""
        neurons, inputs = self.layer.shape
        return self.count, inputs, neurons


@dataclass(frozen=True)
class Checkpoint:
    """`layers`: name → layer. `dropped`: tensors that are of no use here → why. `experts`: name of the model's
    parameter → experts."""

    layers: Mapping[str, QuantizedLayer]
    dropped: Mapping[str, str] = field(default_factory=dict)
    experts: Mapping[str, QuantizedExperts] = field(default_factory=dict)


class Files:
    """What the model's files hold: types and shapes of tensors, looked at before any is read."""

    def __init__(self, stored: Mapping[str, Stored], read: Callable[[str], Tensor]) -> None:
        self.stored, self.read = stored, read

    def layers(self, marker: str) -> list[str]:
        """The layers that have a tensor called `marker`."""
        ending = f".{marker}"
        return [name.removesuffix(ending) for name in self.stored if name.endswith(ending)]

    def parts(self, layer: str) -> "Parts":
        return Parts(self, layer)


class Parts:
    """The tensors of one layer; those that were asked for are in `taken`."""

    def __init__(self, files: Files, layer: str) -> None:
        self.files, self.layer = files, layer
        self.taken: dict[str, str] = {}

    def has(self, part: str) -> bool:
        return self._name(part) in self.files.stored

    def type(self, part: str) -> str:
        """The part's type, "none" where there is no such part."""
        return self.files.stored[self._name(part)].type if self.has(part) else "none"

    def take(self, part: str, types: str | tuple[str, ...], *shapes: tuple[int | None, ...]) -> tuple[int, ...]:
        """The shape of a tensor that must be there, of one of `types` and like one of `shapes`, None for any size."""
        name, types = self._name(part), (types,) if isinstance(types, str) else types
        if name not in self.files.stored:
            raise ModelUnavailableError(f"{name} is missing beside the layer's other quantised tensors: {AGAIN}")
        stored = self.files.stored[name]
        if stored.type not in types or not any(_fits(stored.shape, shape) for shape in shapes):
            wanted = " or ".join(_shown(shape) for shape in shapes)
            raise ModelUnavailableError(
                f"{name} is {stored.type} {list(stored.shape)} where {' or '.join(types)} {wanted} is needed: {AGAIN}"
            )
        if not all(stored.shape):
            raise ModelUnavailableError(f"{name} is empty: {AGAIN}")
        self.taken[part] = name
        return stored.shape

    def read(self, part: str) -> Tensor:
        """A small tensor that was taken, now."""
        return self.files.read(self._name(part))

    def layer_of(self, shape: tuple[int, int], read: Callable[[Mapping[str, Tensor]], SourceWeight]) -> QuantizedLayer:
        return QuantizedLayer(shape, dict(self.taken), read)

    def _name(self, part: str) -> str:
        return f"{self.layer}.{part}" if self.layer else part


def finite(name: str, scales: Tensor) -> Tensor:
    """`scales` if each is a finite number."""
    if not bool(torch.isfinite(scales.to(torch.float32)).all()):
        raise ModelUnavailableError(f"{name} has scales that are not finite: {AGAIN}")
    return scales


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted, strict=True))


def _shown(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
