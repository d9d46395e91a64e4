"""`nn.Linear` with packed weights."""

import torch
from torch import Tensor, nn

from ..kernels import linear, register
from ..kernels.linear import integer_format
from ..tiles import PackedMatrix


class PackedLinear(nn.Module):
    """y = x · Wᵀ + bias with x [..., inputs] on the CPU, for inference: there is no gradient.

    Args:
        matrix: the packed weights [neurons, inputs].
        bias: [neurons].
        activations: "float", "int8" or "bfp:gN:mN"; see `tilepress.kernels.linear`.
    """

    codes: Tensor
    bias: Tensor | None

    def __init__(self, matrix: PackedMatrix, bias: Tensor | None = None, activations: str = "float") -> None:
        super().__init__()
        integer_format(activations)
        if bias is not None and tuple(bias.shape) != (matrix.rows,):
            raise ValueError(f"the bias is [{matrix.rows}], not {list(bias.shape)}")
        self.matrix = matrix
        self.activations = activations
        self.handle = register(matrix)
        self.register_buffer("codes", matrix.codes, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    @property
    def in_features(self) -> int:
        return self.matrix.cols

    @property
    def out_features(self) -> int:
        return self.matrix.rows

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            operator = torch.ops.tilepress.linear
            y: Tensor = operator(x, self.codes, self.bias, self.handle, self.matrix.rows, self.activations)
            return y
        return linear(x, self.matrix, self.bias, activations=self.activations)

    def extra_repr(self) -> str:
        return f"{self.matrix}, bias={self.bias is not None}, activations={self.activations}"
