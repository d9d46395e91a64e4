"""What formats of activations cost a model on a text: Anda's beside those it is compared with."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import Tensor
from transformers import PreTrainedModel

from ..compression.search import Products, bops_saving, relative_loss
from ..formats import Anda
from ..models.tensor_types import LayerType, layer_formats
from ..nn import emulated, with_activations
from ..nn.emulation import to_fp16
from .perplexity import Perplexity, perplexity
from .windows import Track, Windowing


@dataclass(frozen=True)
class Scheme:
    """A format of activations under a name; `format` None is FP16, which the others are compared with."""

    name: str
    format: Anda | None


@dataclass(frozen=True)
class Cost:
    """`loss`: of perplexity, relative to FP16 activations. `saving`: times fewer bit operations."""

    scheme: Scheme
    perplexity: Perplexity
    loss: float
    saving: float


def uniform(bits: int, group: int = 64) -> Anda:
    return Anda((bits, bits, bits, bits), group)


# As Anda's evaluation takes them: FIGNA with 13 bits, VS-Quant's 4-bit format without retraining, both in groups of 64.
FP16 = Scheme("FP16", None)
BASELINES = (
    FP16,
    Scheme("FIGNA", uniform(13)),
    Scheme("VS-Quant", uniform(4)),
    Scheme("Harmonia BFP8", uniform(8, 32)),
)


def compare_schemes(
    model: PreTrainedModel,
    types: Mapping[str, LayerType],
    products: Products,
    tokens: Tensor,
    schemes: Iterable[Scheme],
    windowing: Windowing | None = None,
    track: Track = iter,
) -> Iterator[Cost]:
    """The cost of each of `schemes`, the first of which is FP16, on `tokens` [count]; `types`: of the layers' inputs.

    By emulation, but for packed layers, which have native kernels for it.
    """
    reference: float | None = None
    for scheme in schemes:
        with _activations(model, types, scheme):
            measured = perplexity(model, tokens, windowing, track)
        value = measured.perplexity.value
        reference = value if reference is None else reference
        saving = 1.0 if scheme.format is None else bops_saving(scheme.format.mantissas, products)
        yield Cost(scheme, measured, relative_loss(value, reference), saving)


def cost_table(costs: Sequence[Cost]) -> list[list[str]]:
    """Name, mantissas, perplexity, loss in per cent, saving: a row for each."""
    return [
        [
            cost.scheme.name,
            "" if cost.scheme.format is None else str(cost.scheme.format),
            f"{cost.perplexity.perplexity.value:.4f}",
            f"{100 * cost.loss:+.3f}",
            f"{cost.saving:.2f}",
        ]
        for cost in costs
    ]


def _activations(
    model: PreTrainedModel, types: Mapping[str, LayerType], scheme: Scheme
) -> AbstractContextManager[object]:
    if scheme.format is None:
        return emulated(model, {name: to_fp16 for name, kind in types.items() if kind != "fp"})
    return with_activations(model, layer_formats(types, scheme.format))
