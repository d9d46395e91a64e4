# Written by `make stubs` from the compiled module and native/bindings/stub.pat: change those.
"""
Kernels of tilepress behind argument checks; the package's own modules are the way in.
"""

from collections.abc import Sequence
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray
from torch import Tensor

# batch, heads, channels, window, % of keys and of values left out
KvSizes = tuple[int, int, int, int, int, int]

const_float32_1d = Annotated[
    NDArray[numpy.float32] | Tensor, dict(shape=(None,), order="C", device="cpu", writable=False)
]
const_float32_2d = Annotated[
    NDArray[numpy.float32] | Tensor, dict(shape=(None, None), order="C", device="cpu", writable=False)
]
const_float32_4d = Annotated[
    NDArray[numpy.float32] | Tensor, dict(shape=(None, None, None, None), order="C", device="cpu", writable=False)
]
const_int64_1d = Annotated[NDArray[numpy.int64] | Tensor, dict(shape=(None,), order="C", device="cpu", writable=False)]
const_uint8_1d = Annotated[NDArray[numpy.uint8] | Tensor, dict(shape=(None,), order="C", device="cpu", writable=False)]
const_uint8_2d = Annotated[
    NDArray[numpy.uint8] | Tensor, dict(shape=(None, None), order="C", device="cpu", writable=False)
]
float32_1d = Annotated[NDArray[numpy.float32] | Tensor, dict(shape=(None,), order="C", device="cpu")]
float32_2d = Annotated[NDArray[numpy.float32] | Tensor, dict(shape=(None, None), order="C", device="cpu")]
float32_4d = Annotated[NDArray[numpy.float32] | Tensor, dict(shape=(None, None, None, None), order="C", device="cpu")]
int64_1d = Annotated[NDArray[numpy.int64] | Tensor, dict(shape=(None,), order="C", device="cpu")]
uint8_1d = Annotated[NDArray[numpy.uint8] | Tensor, dict(shape=(None,), order="C", device="cpu")]

def supported_isas() -> list[str]: ...
def cpu_features() -> list[str]: ...
def force_isa(arg: str, /) -> str: ...
def set_batch_invariant(arg: bool, /) -> bool: ...
def active_isa() -> str: ...
def registered() -> list[tuple[str, str, str, bool]]: ...
def chosen(arg: str, /) -> str: ...

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
        thresholds: const_float32_1d,
        codes: const_uint8_1d,
        values: const_float32_1d,
    ) -> None: ...

def count_nonzeros(
    format: Format,
    rows: int,
    cols: int,
    data: const_uint8_1d,
    type: str,
    keep: const_uint8_1d,
    threads: int,
    counts: int64_1d,
) -> None: ...
def pack_weights(
    format: Format,
    rows: int,
    cols: int,
    operand_bits: int,
    sparse: bool,
    data: const_uint8_1d,
    type: str,
    keep: const_uint8_1d,
    scales_given: bool,
    codes: uint8_1d,
    mask: uint8_1d,
    offsets: const_int64_1d,
    scales: uint8_1d,
    zeros: uint8_1d,
    threads: int,
) -> int: ...
def pack_codes(
    format: Format,
    rows: int,
    cols: int,
    operand_bits: int,
    sparse: bool,
    source: const_uint8_1d,
    keep: const_uint8_1d,
    codes: uint8_1d,
    mask: uint8_1d,
    offsets: const_int64_1d,
    threads: int,
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
        codes: uint8_1d,
        mask: uint8_1d,
        offsets: const_int64_1d,
        scales: uint8_1d,
        zeros: uint8_1d,
    ) -> None: ...
    def unpack_codes(self, to: uint8_1d, keep: uint8_1d, threads: int) -> None: ...
    def unpack_weights(self, to: float32_1d, threads: int) -> None: ...
    def gather(self, ids: const_int64_1d, type: str, to: uint8_1d, threads: int) -> None: ...
    def linear(self, x: Tensor, bias: Tensor | None, group: int, mantissa: int, threads: int) -> Tensor | None: ...
    def linear_into(
        self,
        x: const_uint8_1d,
        type: str,
        bias: const_float32_1d,
        y: uint8_1d,
        group: int,
        mantissa: int,
        variant: str,
        threads: int,
    ) -> None: ...
    def float_variant(self, arg0: int, arg1: str, /) -> str: ...
    def integer_variant(self, arg0: int, arg1: int, arg2: int, /) -> str: ...
    def float_candidates(self, arg: str, /) -> list[str]: ...
    def integer_candidates(self, arg0: int, arg1: int, /) -> list[str]: ...
    @property
    def weight_class(self) -> str: ...

def row_limits(isa: str, built_in: bool) -> list[tuple[str, str, str, int]]: ...
def set_row_limits(isa: str, limits: Sequence[tuple[str, str, str, int]]) -> None: ...
def pack_planes(
    rows: int,
    cols: int,
    mantissa: int,
    values: const_uint8_1d,
    type: str,
    planes: uint8_1d,
    exponents: uint8_1d,
    threads: int,
) -> tuple[int, int]: ...
def unpack_planes(
    rows: int, cols: int, mantissa: int, planes: uint8_1d, exponents: uint8_1d, values: uint8_1d, threads: int
) -> int: ...

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

class Decoder:
    def __init__(self, layers: list[DecoderLayer], /) -> None: ...
    def decode(
        self, hidden: Tensor, cosines: Tensor, sines: Tensor, memory: Tensor, length: int, threads: int, /
    ) -> Tensor | None: ...
    def decode_packed(
        self, hidden: Tensor, cosines: Tensor, sines: Tensor, caches: list[KvStore], length: int, threads: int, /
    ) -> Tensor | None: ...

class KvStore:
    def append(self, keys: const_float32_4d, values: const_float32_4d, kept: const_uint8_2d, threads: int) -> None: ...
    def attend(
        self,
        keys: const_float32_4d,
        values: const_float32_4d,
        kept: const_uint8_2d,
        queries: const_float32_4d,
        scaling: float,
        softcap: float,
        sinks: const_float32_1d,
        out: float32_4d,
        threads: int,
    ) -> None: ...
    def attend_tensors(
        self, keys: Tensor, values: Tensor, queries: Tensor, scaling: float, threads: int, /
    ) -> Tensor | None: ...
    def crop(self, lengths: Sequence[int]) -> None: ...
    def select(self, sequences: Sequence[int]) -> KvStore: ...
    def save(self) -> list[tuple[str, bytes]]: ...
    @property
    def has_blocks(self) -> bool: ...
    @property
    def lengths(self) -> list[int]: ...
    @property
    def allocated(self) -> int: ...

class KvSequenceBlock:
    pass

class KvSequence:
    @overload
    def __init__(self, models: Sequence[KvStore], blocks: Sequence[KvSequenceBlock]) -> None: ...
    @overload
    def __init__(self, stores: Sequence[KvStore]) -> None: ...
    def block(self, index: int) -> KvSequenceBlock: ...
    def fork(self) -> KvSequence: ...
    def crop(self, length: int) -> None: ...
    def layer(self, index: int) -> KvStore: ...
    @property
    def length(self) -> int: ...
    @property
    def spoiled(self) -> bool: ...
    @property
    def allocated(self) -> int: ...

BLOCK_TOKENS: int = 32

class BfpKvStore(KvStore):
    def __init__(
        self,
        sizes: KvSizes,
        mantissa: int,
        high: int,
        initial: int,
        local: int,
        nearest: bool,
        smoothed: int,
        rotated: bool,
        /,
    ) -> None: ...
    @staticmethod
    def load(
        lengths: Sequence[int],
        parts: Sequence[tuple[str, bytes]],
        sizes: KvSizes,
        mantissa: int,
        high: int,
        initial: int,
        local: int,
        nearest: bool,
        smoothed: int,
        rotated: bool,
        /,
    ) -> BfpKvStore: ...

class SparseKvStore(KvStore):
    def __init__(self, sizes: KvSizes, type: str, /) -> None: ...
    @staticmethod
    def load(
        lengths: Sequence[int], parts: Sequence[tuple[str, bytes]], sizes: KvSizes, type: str, /
    ) -> SparseKvStore: ...

class PlainMatrix:
    def __init__(self, weights: const_float32_2d) -> None: ...

class StepBlock:
    def __init__(
        self,
        *,
        qkv: list[tuple[Any, ...]],
        o: tuple[Any, ...] | None,
        networks: list[tuple[list[tuple[Any, ...]], tuple[Any, ...]]],
        router: tuple[Any, ...] | None,
        chosen: int,
        renormalised: bool,
        attn_norm: const_float32_1d,
        attn_post_norm: const_float32_1d,
        ffn_norm: const_float32_1d,
        ffn_post_norm: const_float32_1d,
        q_norm: const_float32_1d,
        k_norm: const_float32_1d,
        sinks: const_float32_1d,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scaling: float,
        window: int,
        softcap: float,
        rotary: int,
        interleaved: bool,
        activation: str,
        alpha: float,
        limit: float,
        residual_multiplier: float,
    ) -> None: ...

class Exchange:
    def __init__(self, memory: uint8_1d, rank: int, peers: Sequence[int], patience: float) -> None: ...
    @staticmethod
    def bytes(ranks: int) -> int: ...
    def add_up(self, values: float32_1d, threads: int) -> None: ...
    def fail(self) -> None: ...

class Stepper:
    def __init__(
        self,
        *,
        embedding: tuple[Any, ...],
        blocks: list[StepBlock],
        norm: const_float32_1d,
        output: tuple[Any, ...],
        rotaries: Sequence[tuple[Sequence[float], float, bool]],
        longest: int,
        epsilon: float,
        embedding_multiplier: float,
        logits_scaling: float,
        softcap: float,
        kv: str,
        pages: int,
        page_tokens: int,
        tokens: Sequence[int],
        exchange: Exchange | None,
    ) -> None: ...
    def run(
        self, chunks: Sequence[tuple[Sequence[int], int, object, int]], logits: float32_2d, threads: int
    ) -> None: ...
    def copy_page(self, source: int, target: int) -> None: ...
    def read_page(self, layer: int, page: int, to: float32_4d) -> None: ...
    @property
    def page_bytes(self) -> int: ...

class Sampler:
    def __init__(self) -> None: ...
    def sample(
        self,
        logits: const_float32_2d,
        rows: Sequence[
            tuple[
                float,
                int,
                float,
                float,
                float,
                float,
                int,
                tuple[const_int64_1d, const_float32_1d, const_int64_1d, int, float, float, float, const_uint8_1d | None]
                | None,
            ]
        ],
        threads: int,
    ) -> list[tuple[int, float, list[tuple[int, float]]]]: ...

def advise_huge_pages(arg: const_uint8_1d, /) -> None: ...
def keep_freed_memory() -> None: ...
def thread_runtime() -> str: ...
def most_threads() -> int: ...
def read_bandwidth(data: const_uint8_1d, in_parts: bool, threads: int) -> tuple[float, int]: ...
def tile_rates(cpus: Sequence[int], seconds: float) -> list[float]: ...
