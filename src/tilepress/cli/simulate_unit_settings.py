"""What runs of `simulate unit` have in common: what was typed, the numbers that a unit takes, what comes out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import Labels

if TYPE_CHECKING:
    from torch import Tensor

    from ..simulate.units.dot import Dot, Weights
    from ..simulate.units.events import Events
    from ..simulate.units.rounding import Intermediate


@dataclass(frozen=True)
class DecaSettings:
    """As typed, of deca-pe; with `packed`, weights are those of its matrix `layer`, the first if not given."""

    weights: str
    density: float
    engine: str
    tiles: int
    latency: int
    squash_at: tuple[int, ...]
    packed: Path | None
    layer: str | None


@dataclass(frozen=True)
class Settings:
    """As typed; `data` are the FP16 values given, or None for random ones."""

    mantissa: int | None
    groups: int
    mode: str
    path: str
    weight_format: str
    scale: str
    sums: "Intermediate"
    top: int
    seed: int
    data: "Tensor | None"
    deca: DecaSettings


@dataclass(frozen=True)
class Outcome:
    """`labels`: what sets the unit apart from another of its name. `equal` is None where there is nothing that would
    have to be so; `to` says what it was compared with. `waits`: cycles in which a part did nothing, by cause."""

    labels: Labels
    cycles: int
    formula: int
    events: "Events"
    equal: bool | None
    to: str
    total: float | None = None
    waits: Mapping[str, int] = field(default_factory=dict)


def random_halves(settings: Settings, *shape: int) -> "Tensor":
    """FP16 values over many magnitudes."""
    import torch

    generator = torch.Generator().manual_seed(settings.seed)
    powers = torch.randint(-12, 6, shape, generator=generator).to(torch.float32)
    return (torch.randn(shape, generator=generator) * torch.exp2(powers)).to(torch.float16)


def row(settings: Settings, group: int) -> "Tensor":
    if settings.data is not None and settings.data.ndim != 1:
        raise ValueError(f"the unit takes one row of data, [inputs], not {list(settings.data.shape)}")
    return random_halves(settings, settings.groups * group) if settings.data is None else settings.data


def neuron(inputs: int, group: int, seed: int, activations: str) -> "tuple[Weights, Callable[[Tensor], float]]":
    """Random weights, and the kernel's product of them with activations in that format."""
    import torch

    from .. import formats, kernels
    from ..simulate.units.dot import Weights
    from ..tiles import pack, unpack_codes

    values = torch.randn(1, inputs, generator=torch.Generator().manual_seed(seed))
    matrix = pack(values, f"int4:g{group}")
    quantized, _ = unpack_codes(matrix)
    assert quantized.scales is not None
    integers = formats.decode(quantized.codes, matrix.format.element).to(torch.int64)
    weights = Weights(integers[0], quantized.scales[0].to(torch.float32), group)
    return weights, lambda x: float(kernels.linear(x.to(torch.float32)[None], matrix, activations=activations))


def check_span(x: "Tensor") -> None:
    from ..kernels.reference import SPAN

    if len(x) > SPAN:
        raise ValueError(
            f"rows have at most {SPAN} inputs, which kernels sum at a time, not {len(x)}: take fewer groups"
        )


def dot_outcome(labels: Labels, dot: "Dot", formula: int, expected: float, exact: bool, to: str = "kernels") -> Outcome:
    equal = dot.total == expected if exact else None
    return Outcome(labels, dot.cycles, formula, dot.events, equal, to if exact else "", dot.total)
