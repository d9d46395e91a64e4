"""The constant that transformers' `*ScaledWordEmbedding` multiply the rows by which they look up."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

# Their models read the table's weight beside looking rows up in it.
READ_BY_CODE = ("Gemma4TextScaledWordEmbedding", "DiffusionGemmaTextScaledWordEmbedding")


@dataclass(frozen=True, eq=False)
class RowScale:
    """What an embedding of class `kind` multiplies rows by.

    number: as the model's config gives it. rounded: the buffer without dimensions that holds it in Gemma, which a cast
    of the module rounds; None in the BART family, where the number itself multiplies.
    """

    kind: type[nn.Embedding]
    number: float
    rounded: Tensor | None

    def times(self, rows: Tensor) -> Tensor:
        """As `kind` computes it, to the bit."""
        return rows * (self.number if self.rounded is None else self.rounded.to(rows.dtype))

    def cast(self, fn: Callable[[Tensor], Tensor]) -> "RowScale":
        if self.rounded is None:
            return self
        return replace(self, rounded=self.rounded.to(fn(self.rounded).dtype))

    def dense(self, rows: int, cols: int, padding_idx: int | None) -> nn.Embedding:
        """A module of `kind` that awaits its weight."""
        kind: Any = self.kind
        with torch.device("meta"):
            module: nn.Embedding = kind(rows, cols, padding_idx, embed_scale=self.number)
        if self.rounded is not None:
            module.embed_scale = self.rounded.clone()
        return module


def is_lookup(module: nn.Module) -> bool:
    """Whether it gives rows of its weight, or these times a constant, and nobody else reads the weight."""
    return type(module) is nn.Embedding or _is_scaled(module)


def scale_of(module: nn.Embedding) -> RowScale | None:
    """What `module`, which may be without weights, multiplies rows by; None where that is nothing."""
    if type(module) is nn.Embedding:
        return None
    if not _is_scaled(module):
        raise ValueError(f"{type(module).__name__} cannot be packed: its weights must stay as they are")
    own: Any = module.embed_scale
    number = float(getattr(module, "scalar_embed_scale", own))  # the buffer may be on the meta device
    return RowScale(type(module), number, _rounded(own, number) if isinstance(own, Tensor) else None)


def _rounded(own: Tensor, number: float) -> Tensor:
    return torch.tensor(number, dtype=own.dtype, device="cpu") if own.is_meta else own.detach().cpu().clone()


def _is_scaled(module: nn.Module) -> bool:
    """T5Gemma 2's has a vector of its own beside the weight, and is none."""
    kind = type(module)
    named = kind.__name__.endswith("ScaledWordEmbedding") and kind.__name__ not in READ_BY_CODE
    return (
        named
        and kind.__module__.startswith("transformers.models.")
        and kind.__bases__ == (nn.Embedding,)
        and [name for name, _ in module.named_parameters()] == ["weight"]
    )
