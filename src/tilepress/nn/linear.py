"""`nn.Linear` with packed weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels import linear
from ..kernels.linear import native_rounding
from ..tiles import PackedMatrix
from .packed import PackedModule


class PackedLinear(PackedModule):
    """y = x · Wᵀ + bias with x [..., inputs] on the CPU.

    x has its gradient, through the unpacked weights; rounding of activations to int8 or block floating point counts as
    none in it (straight through). Weights and bias are fixed: they have none.

    The bias is in the module's state too, and is all that a cast changes.

    Args:
        matrix: the packed weights [neurons, inputs].
        bias: [neurons].
        activations: "float", "bf16", "int8" or "bfp:gN:mN"; see `tilepress.kernels.linear`.
    """

    bias: Tensor | None

    def __init__(self, matrix: PackedMatrix, bias: Tensor | None = None, activations: str = "float") -> None:
        super().__init__()
        if bias is not None and tuple(bias.shape) != (matrix.rows,):
            raise ValueError(f"the bias is [{matrix.rows}], not {list(bias.shape)}")
        self._begin(matrix.rows, matrix.cols, bias, activations)
        self._take(matrix)

    @classmethod
    def awaiting(
        cls, like: nn.Linear, streams: Mapping[str, torch.dtype], activations: str = "float"
    ) -> "PackedLinear":
        """A layer in the place of `like` whose arrays are to be put into its buffers; `complete` it then."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._begin(like.out_features, like.in_features, like.bias, activations)
        return layer._await(streams, like.weight.device)

    def set_activations(self, activations: str) -> None:
        """Compute with other activations from now on."""
        native_rounding(activations)
        self.activations = activations

    def _begin(self, rows: int, cols: int, bias: Tensor | None, activations: str) -> None:
        native_rounding(activations)
        self.in_features, self.out_features = cols, rows
        self.activations = activations
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    @property
    def _shape(self) -> tuple[int, int]:
        return (self.out_features, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        matrix = self._whole()
        if torch.compiler.is_compiling():
            operator = torch.ops.tilepress.linear
            y: Tensor = operator(x, self.codes, self.bias, self.handle, self.out_features, self.activations)
            return y
        return linear(x, matrix, self.bias, activations=self.activations)

    def extra_repr(self) -> str:
        return f"{self.matrix}, bias={self.bias is not None}, activations={self.activations}"

    def _apply(self, fn: Any, recurse: bool = True) -> "PackedLinear":
        if self.matrix is not None:
            _refuse_place(fn(torch.empty(0) if self.bias is None else self.bias[:0]))
        if self.bias is not None:
            self.bias = fn(self.bias)
        return self

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, *reports: list[str]
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *reports)
        self._load_bias(state_dict.get(prefix + "bias"), prefix, *reports)

    def _load_bias(
        self, bias: Tensor | None, prefix: str, missing: list[str], unexpected: list[str], _errors: list[str]
    ) -> None:
        if (bias is None) != (self.bias is None):
            (missing if bias is None else unexpected).append(prefix + "bias")
        elif bias is not None and self.bias is not None:
            self.bias = bias.detach().to(self.bias.dtype).clone()

    def _copied(self) -> "PackedLinear":
        return PackedLinear(self._whole(), self.bias, self.activations)


def _refuse_place(sample: Tensor) -> None:
    """TypeError where a packed layer cannot follow its module to the type or device of `sample`."""
    if sample.device.type != "cpu":
        raise TypeError(
            f"packed layers compute on the CPU and cannot be moved to {sample.device}: dequantize() the model first, "
            "or leave it where it is"
        )
    if sample.dtype == torch.float64:
        raise TypeError(
            "packed layers compute with float32, bfloat16 or float16 and cannot be cast to float64: dequantize() the "
            "model first, or call float()"
        )
