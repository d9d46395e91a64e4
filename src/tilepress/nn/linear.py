"""`nn.Linear` with packed weights."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import _native
from ..kernels import linear, register
from ..kernels.linear import native_rounding
from ..tiles import DamagedError, PackedMatrix
from ..tiles.container import VERSION, check_version, describe, read_entry, restore

LONGEST = 64_000  # bytes of a description: a table of 256 values and five checksums are 7,000
STREAMS = ("codes", "mask", "offsets", "scales", "zeros")


class PackedLinear(nn.Module):
    """y = x · Wᵀ + bias with x [..., inputs] on the CPU.

    x has its gradient, through the unpacked weights; rounding of activations to int8 or block floating point counts as
    none in it (straight through). Weights and bias are fixed: they have none.

    Its state is the matrix' arrays (`codes`, and those of `mask`, `offsets`, `scales` and `zeros` that there are), the
    bias, and under the name `weight` the text that describes the matrix: format, shape, checksums. So a layer is
    whole in itself; and whoever loads it as an ordinary layer finds a `weight` of the wrong shape and stops, instead
    of going on with random weights. Neither `to(dtype)` nor another cast of the module touches anything but the bias.

    Args:
        matrix: the packed weights [neurons, inputs].
        bias: [neurons].
        activations: "float", "bf16", "int8" or "bfp:gN:mN"; see `tilepress.kernels.linear`.
    """

    weight: Tensor
    codes: Tensor
    bias: Tensor | None
    matrix: PackedMatrix | None

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
        for name, dtype in {"weight": torch.int8, **streams}.items():
            layer.register_buffer(name, torch.empty(0, dtype=dtype, device=like.weight.device))
        return layer

    def complete(self, name: str = "the layer", *, is_checked: bool = False) -> None:
        """Check the arrays that were put into the buffers, and compute with a private copy of them from now on.

        DamagedError, with `name` in it, if they are not what was once saved. Checksums are left out where the file that
        they come from `is_checked`.
        """
        _native.keep_freed_memory()
        self._take(_restore(name, self._buffers, self._shape, is_checked))

    def set_activations(self, activations: str) -> None:
        """Compute with other activations from now on."""
        native_rounding(activations)
        self.activations = activations

    def _begin(self, rows: int, cols: int, bias: Tensor | None, activations: str) -> None:
        native_rounding(activations)
        self.in_features, self.out_features = cols, rows
        self.activations = activations
        self.matrix = None
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def _take(self, matrix: PackedMatrix) -> None:
        self.matrix = matrix
        self.handle = register(matrix)
        self.register_buffer("weight", _description(matrix))
        for name in STREAMS:
            self._buffers.pop(name, None)
        for name, array in matrix.streams.items():
            self.register_buffer(name, array)

    @property
    def _shape(self) -> tuple[int, int]:
        return (self.out_features, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        if self.matrix is None:
            raise RuntimeError("no weights were loaded into this layer yet; complete() it once they are")
        if torch.compiler.is_compiling():
            operator = torch.ops.tilepress.linear
            y: Tensor = operator(x, self.codes, self.bias, self.handle, self.out_features, self.activations)
            return y
        return linear(x, self.matrix, self.bias, activations=self.activations)

    def extra_repr(self) -> str:
        return f"{self.matrix}, bias={self.bias is not None}, activations={self.activations}"

    def _apply(self, fn: Any, recurse: bool = True) -> "PackedLinear":
        if self.bias is not None:
            self.bias = fn(self.bias)
        return self

    def _load_from_state_dict(  # torch would copy into arrays that native code has been promised are consistent
        self, state_dict: Mapping[str, Any], prefix: str, _metadata: Any, _strict: bool, *reports: list[str]
    ) -> None:
        missing, unexpected, errors = reports
        state = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        bias = state.pop("bias", None)
        if "weight" not in state:
            missing.append(prefix + "weight")
            return
        try:
            self._take(_restore(prefix.rstrip(".") or "the layer", state, self._shape))
        except DamagedError as error:
            errors.append(str(error))
        if (bias is None) != (self.bias is None):
            (missing if bias is None else unexpected).append(prefix + "bias")
        elif bias is not None and self.bias is not None:
            self.bias = bias.detach().to(self.bias.dtype).clone()

    def __getstate__(self) -> dict[str, Any]:
        """Without the arrays, which the matrix has, and the matrix' number in this process."""
        state = {key: value for key, value in self.__dict__.items() if key != "handle"}
        skipped = () if self.matrix is None else STREAMS
        return {**state, "_buffers": {name: array for name, array in self._buffers.items() if name not in skipped}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call, unused-ignore]
        if self.matrix is not None:
            described = self.weight
            self._take(self.matrix)
            if not torch.equal(self.weight, described):
                raise DamagedError("the layer is damaged: its arrays are not those that were pickled")

    def __deepcopy__(self, memo: dict[int, Any]) -> "PackedLinear":
        if self.matrix is None:
            raise RuntimeError("no weights were loaded into this layer yet, so there is nothing to copy")
        copy = PackedLinear(self.matrix, self.bias, self.activations)  # a matrix never changes, so copies share it
        memo[id(self)] = copy
        return copy.train(self.training)


def _description(matrix: PackedMatrix) -> Tensor:
    """int8, the type by which models that look at a layer's `weight` know that it is no plain one."""
    text = json.dumps({**describe(matrix), "version": VERSION}).encode("ascii")
    return torch.from_numpy(np.frombuffer(text, np.int8).copy())


def _restore(
    name: str, state: Mapping[str, Tensor | None], shape: tuple[int, int], is_checked: bool = False
) -> PackedMatrix:
    arrays = {part: array for part in STREAMS if (array := state.get(part)) is not None}
    try:
        description = json.loads(_text(state["weight"]))
        entry = read_entry(description)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{name} is damaged: its description cannot be understood: {error!r}") from error
    check_version(name, description)
    if arrays.keys() != entry.sha256.keys():
        odd = sorted(arrays.keys() ^ entry.sha256.keys())[0]
        raise DamagedError(f"{name} is damaged: its description and its arrays disagree about {odd}")
    if entry.shape != shape:
        raise DamagedError(f"{name} is damaged: it is {entry.shape[0]}×{entry.shape[1]}, not {shape[0]}×{shape[1]}")
    return restore(name, entry, arrays, is_checked=is_checked)


def _text(weight: Tensor | None) -> bytes:
    if weight is None or weight.is_meta or weight.dtype != torch.int8:
        raise TypeError("there is none")
    if weight.numel() > LONGEST:
        raise ValueError(f"it has {weight.numel()} bytes, and none has more than {LONGEST}")
    return weight.cpu().numpy().tobytes()
