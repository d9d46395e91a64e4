"""Stores of packed keys and values, and attention over them: native memory and kernels of one layer cache."""

from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import _native
from ..formats import FormatError
from ..formats.kv import KvBfp, KvFormat
from ..tiles.packing import thread_count
from .attention_reference import PLAIN, Softmax
from .gradients import without_gradient

GROUP = 32  # values that share an exponent in a packed cache
LANES = 16  # channels of a head are a multiple of it in a sparse cache
_NONE: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = np.empty(0, np.float32)
_ALL: np.ndarray[tuple[int, int], np.dtype[np.uint8]] = np.empty((0, 0), np.uint8)


class KvStore:
    """Packed keys and values of one attention layer, [batch, heads, tokens, channels]; it grows.

    A query gets the same bits with any number of threads and however tokens are divided among calls. Threads may share
    a store: each call is done as a whole before the next begins.
    """

    kind: type[_native.BfpKvStore] | type[_native.SparseKvStore]
    number: tuple[Any, ...]  # arguments of a native store after its sizes
    native: _native.KvStore

    def __init__(self, batch: int, heads: int, channels: int, window: int | None, sparsity: tuple[int, int]) -> None:
        self._batch, self.heads, self.channels = batch, heads, channels
        self.window, self.sparsity = window, sparsity
        self._turn = RLock()  # held while a call uses `native` or puts another in its place

    def __getattr__(self, name: str) -> Any:
        """`native`, made when it is first used: a store that is restored never has the memory of an empty one."""
        if name != "native":
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        with self._turn:
            if "native" not in self.__dict__:  # another thread may have been faster
                self.native = self.kind(self._sizes(self._batch), *self.number)
            return self.__dict__["native"]

    def _sizes(self, batch: int) -> tuple[int, int, int, int, int, int]:
        return batch, self.heads, self.channels, self.window or 0, *self.sparsity

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence, padding not among them."""
        return self.native.lengths

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.native.allocated

    def append(
        self, keys: Tensor, values: Tensor, token_mask: Tensor | None = None, *, threads: int | None = None
    ) -> None:
        """Add tokens [batch, heads, count, channels]; `token_mask`, bool [batch, count], is false for padding."""
        arrays = (_floats(keys), _floats(values), _flags(token_mask))
        with self._turn:
            self.native.append(*arrays, thread_count(threads))

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scaling: float,
        token_mask: Tensor | None = None,
        *,
        softmax: Softmax = PLAIN,
        threads: int | None = None,
    ) -> Tensor:
        """Add tokens as `append` does, and let the query of each attend to all up to its own.

        queries: [batch, query heads, count, channels]; each head of keys serves as many heads of queries. The result is
        shaped like them and of their type; of padding it is 0. There is no gradient: backward() raises RuntimeError.
        """
        tensors, workers = (queries, keys, values), thread_count(threads)
        out = None
        if token_mask is None and softmax is PLAIN:
            with self._turn:
                out = self.native.attend_tensors(keys, values, queries, scaling, workers)
        if out is None:
            out = self._attend_arrays(tensors, scaling, token_mask, softmax, workers)
        return without_gradient(out, tensors, "attention over a packed KV cache")

    def _attend_arrays(
        self,
        tensors: tuple[Tensor, Tensor, Tensor],
        scaling: float,
        token_mask: Tensor | None,
        softmax: Softmax,
        workers: int,
    ) -> Tensor:
        queries, keys, values = tensors
        if queries.ndim != 4:
            raise ValueError(f"queries are [batch, heads, tokens, channels], not {list(queries.shape)}")
        out = np.empty(tuple(queries.shape), np.float32)
        arrays = (_floats(keys), _floats(values), _flags(token_mask), _floats(queries))
        sinks = _NONE if softmax.sinks is None else _floats(softmax.sinks)
        with self._turn:
            self.native.attend(*arrays, scaling, softmax.softcap or 0.0, sinks, out, workers)
        return torch.from_numpy(out).to(queries.dtype)

    def crop(self, lengths: list[int]) -> None:
        """Shorten each sequence to at most so many tokens. What was rounded or left out stays so."""
        with self._turn:
            self.native.crop(lengths)

    def select(self, sequences: list[int]) -> None:
        """Keep the sequences with these numbers, in this order, each as often as it is named."""
        with self._turn:
            self.native = self.native.select(sequences)

    def __deepcopy__(self, _: dict[int, Any]) -> "KvStore":
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _turn=RLock())
        twin.select(list(range(len(twin.lengths))))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        with self._turn:
            return {**self.__dict__, "native": (self.lengths, self.native.save()), "_turn": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        lengths, parts = state.pop("native")
        self.__dict__.update(state, _turn=RLock())
        self.native = self.kind.load(lengths, parts, self._sizes(len(lengths)), *self.number)

    def state(self) -> dict[str, Tensor]:
        """Everything but format and lengths, as bytes: what `restore` takes."""
        return {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, data in self.native.save() if data}

    def restore(self, lengths: list[int], state: dict[str, Tensor]) -> None:
        """Take up a saved state; ValueError where it is not one of a store like this."""
        if any(length.bit_length() > 62 for length in lengths):
            raise ValueError("a sequence cannot have so many tokens")
        parts = [(name, array.numpy().tobytes()) for name, array in state.items()]
        with self._turn:
            self.native = self.kind.load(lengths, parts, self._sizes(len(lengths)), *self.number)


class BfpKvStore(KvStore):
    """Keys and values of one attention layer: [batch, heads, tokens, channels] in block floating point, growing.

    What it gives is, to the bit, what `attention_reference.attend` gives for each token and its predecessors, on every
    instruction set, with any number of threads, and however tokens are divided among calls.

    Args:
        window: tokens that a query sees, its own included; those before are given up. All if None.
        smoothed_channels: channels of each head's keys that have an offset.
        rotated: keys and queries are times a Hadamard matrix, see `hadamard`, before everything else.
        sparsity: % of a token's keys and of its values, the smallest of all heads as halves, that are left out when it
            comes. Then blocks that will not change any more store no zeros, but bits that say where they are; not with
            a window.
    """

    kind = _native.BfpKvStore

    def __init__(
        self,
        format: KvBfp,
        batch: int,
        heads: int,
        channels: int,
        *,
        window: int | None = None,
        smoothed_channels: int = 0,
        rotated: bool = False,
        sparsity: tuple[int, int] = (0, 0),
    ) -> None:
        check_channels(format, channels)
        bits = (format.mantissa, format.high, format.initial, format.local, format.nearest)
        self.number = (*bits, smoothed_channels, rotated)
        super().__init__(batch, heads, channels, window, sparsity)


class SparseKvStore(KvStore):
    """Keys and values as halves, the smallest of each token's left out when its block is full: bits that say which are
    there, and those.

    What it gives is, within a few roundings of float32, what `attention_reference.attend_sparse` gives.

    Args:
        format: fp16 or bf16, with sparsities.
        window: see `BfpKvStore`.
    """

    kind = _native.SparseKvStore

    def __init__(self, format: KvFormat, batch: int, heads: int, channels: int, *, window: int | None = None) -> None:
        check_lanes(format, channels)
        self.number = (format.number,)
        super().__init__(batch, heads, channels, window, (format.key_sparsity, format.value_sparsity))


def kv_store(
    format: KvFormat,
    batch: int,
    heads: int,
    channels: int,
    *,
    window: int | None = None,
    smoothed_channels: int = 0,
) -> KvStore:
    """An empty store in `format`, which is block floating point or sparse."""
    if format.bfp is None:
        return SparseKvStore(format, batch, heads, channels, window=window)
    sparsity = (format.key_sparsity, format.value_sparsity)
    keys: dict[str, Any] = {"smoothed_channels": smoothed_channels, "rotated": format.rotated}
    return BfpKvStore(format.bfp, batch, heads, channels, window=window, sparsity=sparsity, **keys)


def can_pack(format: KvFormat, channels: int) -> bool:
    """Whether `kv_store` takes heads of so many channels."""
    if format.bfp is None:
        return format.is_sparse and channels % LANES == 0
    return format.bfp.group == GROUP and channels % GROUP == 0


def check_channels(format: KvBfp, channels: int) -> None:
    """FormatError where heads of so many channels cannot be stored in `format`."""
    if format.group != GROUP:
        raise FormatError(f"a packed cache has groups of {GROUP}, not {format.group}: write {format} with g{GROUP}")
    if channels % GROUP:
        raise FormatError(f"heads of {channels} channels cannot be cut in groups of {GROUP}: take fp16 or bf16")


def check_lanes(format: KvFormat, channels: int) -> None:
    """FormatError where heads of so many channels cannot be stored in `format`."""
    if format.bfp is not None:
        raise FormatError(f"a sparse cache holds fp16 or bf16, not {format}")
    if channels % LANES:
        raise FormatError(f"heads of {channels} channels cannot be cut in lanes of {LANES}: take fp16 or bf16")


def _floats(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if not x.is_cpu:
        raise TypeError(f"a packed cache computes on the CPU, not on {x.device}")
    return x.detach().to(torch.float32).contiguous().resolve_neg().numpy()


def _flags(token_mask: Tensor | None) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return _ALL if token_mask is None else token_mask.to(torch.uint8).contiguous().resolve_neg().numpy()
