"""Where a model's stages come from and go to while it is compressed, and where hidden states wait between them."""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

Stream = Literal["compressed", "dense"]  # whose hidden states: of the blocks as compressed, or as they came


@dataclass(frozen=True)
class Layer:
    """One packed layer, or the embedding. `error`: relative error of its output, see
    `tilepress.compression.compress_weight`. `tied`: the output layer that takes an embedding's matrix, and computes
    with those activations. `grid_error`: of weights that came on a grid of the format, see `CompressedWeight`.
    `rounding`: why weights that came quantised were rounded again, if they were. `calibrated`: false where the recipe
    looks at inputs and too few reached the layer."""

    name: str
    format: str
    density: float
    error: float
    shape: tuple[int, int]
    nbytes: int
    bits_per_weight: float
    activations: str
    streams: dict[str, str]
    tied: str | None = None
    grid_error: float | None = None
    rounding: str = ""
    calibrated: bool = True

    @property
    def weights(self) -> int:
        return self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class Progress:
    """`done` of `total` stages (blocks, and the rest), or steps where that is what it is `doing`; `seconds_left` is
    None before the first is done."""

    done: int
    total: int
    seconds_left: float | None
    doing: str = "compressing"


class Storage(Protocol):
    """Where a model's stages come from and go to, and where hidden states wait between them."""

    def finished(self, stage: str) -> list[Layer] | None:
        """The layers of a stage that was finished before."""

    def fetch(self, stage: str) -> None:
        """Give the stage's modules their weights."""

    def hidden(self, stage: str, shape: tuple[int, ...], stream: Stream = "compressed") -> Tensor:
        """float32, to hold the inputs of `stage` in that stream: as they were left, if they were."""

    def release(self, stage: str) -> None:
        """The stage's weights are not needed any more."""

    def finish(self, stage: str, layers: list[Layer]) -> None:
        """The stage is done, and so are the inputs of the next one."""


class MemoryStorage:
    """A model that is here already, and stays."""

    def __init__(self) -> None:
        self._hidden: dict[tuple[str, Stream], Tensor] = {}

    def finished(self, stage: str) -> list[Layer] | None:
        return None

    def fetch(self, stage: str) -> None:
        pass

    def hidden(self, stage: str, shape: tuple[int, ...], stream: Stream = "compressed") -> Tensor:
        return self._hidden.setdefault((stage, stream), torch.empty(shape))

    def release(self, stage: str) -> None:
        pass

    def finish(self, stage: str, layers: list[Layer]) -> None:
        self._hidden.pop((stage, "compressed"), None)
        self._hidden.pop((stage, "dense"), None)
