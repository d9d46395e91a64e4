"""Modules that own a packed matrix: what they save, load, copy and pickle."""

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from .. import _native
from ..kernels import register
from ..tiles import DamagedError, PackedMatrix
from ..tiles.container import VERSION, check_version, describe, read_entry, restore

LONGEST = 64_000  # bytes of a description: a table of 256 values and five checksums are 7,000
STREAMS = ("codes", "mask", "offsets", "scales", "zeros")


class PackedModule(nn.Module):
    """Weights as a packed matrix [rows, cols].

    Its state is the matrix' arrays (`codes`, and those of `mask`, `offsets`, `scales` and `zeros` that there are), and
    under the name `weight` the text that describes the matrix: format, shape, checksums. So a module is whole in
    itself; and whoever loads it as an ordinary one finds a `weight` of the wrong shape and stops, instead of going on
    with random weights. No cast of the module, `to(dtype)` say, touches the matrix.
    """

    weight: Tensor
    codes: Tensor
    matrix: PackedMatrix | None
    handle: int
    is_saved = True  # whether the arrays are in the module's state

    @property
    def _shape(self) -> tuple[int, int]:
        """Of the matrix."""
        raise NotImplementedError

    def _await(self, streams: Mapping[str, torch.dtype], device: torch.device) -> Self:
        """Empty buffers, for the arrays that are to come."""
        self.matrix = None
        for name, dtype in {"weight": torch.int8, **streams}.items():
            self.register_buffer(name, torch.empty(0, dtype=dtype, device=device))
        return self

    def complete(self, name: str = "the layer", *, is_checked: bool = False) -> None:
        """Check the arrays that were put into the buffers, and compute with a private copy of them from now on.

        DamagedError, with `name` in it, if they are not what was once saved. Checksums are left out where the file that
        they come from `is_checked`.
        """
        _native.keep_freed_memory()
        self._take(_restore(name, self._buffers, self._shape, is_checked))

    def _take(self, matrix: PackedMatrix) -> None:
        self.matrix = matrix
        self.handle = register(matrix)
        for name in STREAMS:
            self._buffers.pop(name, None)
        for name, array in {"weight": _description(matrix), **matrix.streams}.items():
            self.register_buffer(name, array, persistent=self.is_saved)

    def _whole(self) -> PackedMatrix:
        if self.matrix is None:
            raise RuntimeError("no weights were loaded into this layer yet; complete() it once they are")
        return self.matrix

    def _load_from_state_dict(  # torch would copy into arrays that native code has been promised are consistent
        self, state_dict: Mapping[str, Any], prefix: str, _metadata: Any, _strict: bool, *reports: list[str]
    ) -> None:
        missing, _, errors = reports
        state = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        if "weight" not in state:
            missing.append(prefix + "weight")
            return
        arrays = {name: state[name] for name in ("weight", *STREAMS) if name in state}
        try:
            self._take(_restore(prefix.rstrip(".") or "the layer", arrays, self._shape))
        except DamagedError as error:
            errors.append(str(error))

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

    def _copied(self) -> Self:
        """A module like it. A matrix never changes, so copies share it."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self.matrix is None:
            raise RuntimeError("no weights were loaded into this layer yet, so there is nothing to copy")
        copy = memo[id(self)] = self._copied()
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
