"""Types of the compiled module, native/bindings/module.cc."""

from typing import Any

from torch import Tensor

# Anything that speaks DLPack on the CPU: one-dimensional, contiguous uint8, int64 or float32.
Array = Any

class Format:
    def __init__(
        self,
        *,
        rounding: str,
        bits: int,
        low: float,
        high: float,
        max: float,
        emax: int,
        zero_point: bool,
        scale: str,
        group: int,
        mantissa_bits: int,
        min_exponent: int,
        thresholds: Array,
        codes: Array,
        values: Array,
    ) -> None: ...

def use_tensor_type(type: type[Tensor]) -> bool: ...

class Matrix:
    def __init__(
        self,
        format: Format,
        rows: int,
        cols: int,
        operand_bits: int,
        sparse: bool,
        codes: Array,
        mask: Array,
        offsets: Array,
        scales: Array,
        zeros: Array,
    ) -> None: ...
    def unpack_codes(self, to: Array, keep: Array, threads: int) -> None: ...
    def unpack_weights(self, to: Array, threads: int) -> None: ...
    def linear(self, x: Tensor, bias: Tensor | None, group: int, mantissa: int, threads: int) -> Tensor | None: ...
    def linear_into(
        self, x: Array, type: str, bias: Array, y: Array, group: int, mantissa: int, way: str, threads: int
    ) -> None: ...
    def float_way(self, batch: int, type: str, /) -> str: ...
    def integer_way(self, batch: int, group: int, mantissa: int, /) -> str: ...

class GrowingKv:
    def append(self, keys: Array, values: Array, kept: Array, threads: int) -> None: ...
    def attend_tensors(
        self, keys: Tensor, values: Tensor, queries: Tensor, scaling: float, threads: int, /
    ) -> Tensor | None: ...
    def attend(
        self, keys: Array, values: Array, kept: Array, queries: Array, scaling: float, out: Array, threads: int
    ) -> None: ...
    def crop(self, lengths: list[int]) -> None: ...
    def select(self, sequences: list[int]) -> GrowingKv: ...
    def save(self) -> list[tuple[str, bytes]]: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def allocated(self) -> int: ...

# batch, heads, channels, window, % of keys and of values left out
KvSizes = tuple[int, int, int, int, int, int]

class KvCache(GrowingKv):
    def __init__(
        self, sizes: KvSizes, mantissa: int, high: int, initial: int, local: int, smoothed: int, /
    ) -> None: ...
    @staticmethod
    def load(
        lengths: list[int],
        parts: list[tuple[str, bytes]],
        sizes: KvSizes,
        mantissa: int,
        high: int,
        initial: int,
        local: int,
        smoothed: int,
        /,
    ) -> KvCache: ...

class SparseKvCache(GrowingKv):
    def __init__(self, sizes: KvSizes, type: str, /) -> None: ...
    @staticmethod
    def load(lengths: list[int], parts: list[tuple[str, bytes]], sizes: KvSizes, type: str, /) -> SparseKvCache: ...

class DecoderLayer:
    def __init__(
        self,
        type: str,
        heads: int,
        kv_heads: int,
        head_dim: int,
        epsilon: float,
        scaling: float,
        input_norm: Tensor,
        post_norm: Tensor,
        linears: list[tuple[Matrix, Tensor | None, int, int]],
        /,
    ) -> None: ...

class Watch:
    def __init__(
        self,
        same: list[tuple[dict[str, Any], str, object]],
        lacking: list[tuple[dict[str, Any], str]],
        empty: list[dict[Any, Any]],
        /,
    ) -> None: ...
    def is_same(self) -> bool: ...
    def is_lacking(self) -> bool: ...
    def is_empty(self) -> bool: ...

class Decoder:
    def __init__(self, layers: list[DecoderLayer], /) -> None: ...
    def decode(
        self, hidden: Tensor, cosines: Tensor, sines: Tensor, memory: Tensor, length: int, threads: int, /
    ) -> Tensor | None: ...
    def decode_packed(
        self, hidden: Tensor, cosines: Tensor, sines: Tensor, caches: list[GrowingKv], length: int, threads: int, /
    ) -> Tensor | None: ...

def supported_isas() -> list[str]: ...
def cpu_features() -> list[str]: ...
def active_isa() -> str: ...
def force_isa(name: str) -> str: ...
def set_batch_invariant(wanted: bool, /) -> bool: ...
def registered() -> list[tuple[str, str, str, bool]]: ...
def chosen(operation: str, /) -> str: ...
def count_nonzeros(
    format: Format, rows: int, cols: int, data: Array, type: str, keep: Array, threads: int, counts: Array
) -> None: ...
def pack_weights(
    format: Format,
    rows: int,
    cols: int,
    operand_bits: int,
    sparse: bool,
    data: Array,
    type: str,
    keep: Array,
    scales_given: bool,
    codes: Array,
    mask: Array,
    offsets: Array,
    scales: Array,
    zeros: Array,
    threads: int,
) -> int: ...
def pack_codes(
    format: Format,
    rows: int,
    cols: int,
    operand_bits: int,
    sparse: bool,
    source: Array,
    keep: Array,
    codes: Array,
    mask: Array,
    offsets: Array,
    threads: int,
) -> None: ...
def pack_planes(
    rows: int,
    cols: int,
    mantissa: int,
    values: Array,
    type: str,
    planes: Array,
    exponents: Array,
    threads: int,
) -> tuple[int, int]: ...
def unpack_planes(
    rows: int, cols: int, mantissa: int, planes: Array, exponents: Array, values: Array, threads: int
) -> int: ...
def keep_freed_memory() -> None: ...
def advise_huge_pages(data: Array, /) -> None: ...
def read_bandwidth(data: Array, in_parts: bool, threads: int) -> tuple[float, int]: ...
def thread_runtime() -> str: ...
def most_threads() -> int: ...
