# What nanobind cannot tell of the compiled module's signatures: torch's tensors, which the bindings take as plain objects,
# what lists hold, and names of positional arguments. `make stubs` fails where a pattern matches nothing.

_native.__prefix__:
    \from torch import Tensor
    # batch, heads, channels, window, % of keys and of values left out
    KvSizes = tuple[int, int, int, int, int, int]

_native.use_tensor_type$:
    def use_tensor_type(type: type[Tensor]) -> bool: ...

_native.Matrix.linear$:
    def linear(self, x: Tensor, bias: Tensor | None, group: int, mantissa: int, threads: int) -> Tensor | None: ...

_native.Watch.__init__$:
    \from typing import Any
    def __init__(self, same: list[tuple[dict[str, Any], str, object]], lacking: list[tuple[dict[str, Any], str]], empty: list[dict[Any, Any]], /) -> None: ...

_native.DecoderLayer.__init__$:
    def __init__(self, type: str, heads: int, kv_heads: int, head_dim: int, epsilon: float, scaling: float, input_norm: Tensor, post_norm: Tensor, linears: list[tuple[Matrix, Tensor | None, int, int]], /) -> None: ...

_native.Decoder.__init__$:
    def __init__(self, layers: list[DecoderLayer], /) -> None: ...

_native.Decoder.decode$:
    def decode(self, hidden: Tensor, cosines: Tensor, sines: Tensor, memory: Tensor, length: int, threads: int, /) -> Tensor | None: ...

_native.Decoder.decode_packed$:
    def decode_packed(self, hidden: Tensor, cosines: Tensor, sines: Tensor, caches: list[KvStore], length: int, threads: int, /) -> Tensor | None: ...

_native.KvStore.attend_tensors$:
    def attend_tensors(self, keys: Tensor, values: Tensor, queries: Tensor, scaling: float, threads: int, /) -> Tensor | None: ...

_native.BfpKvStore.__init__$:
    def __init__(self, sizes: KvSizes, mantissa: int, high: int, initial: int, local: int, nearest: bool, smoothed: int, rotated: bool, /) -> None: ...

_native.BfpKvStore.load$:
    @staticmethod
    def load(lengths: Sequence[int], parts: Sequence[tuple[str, bytes]], sizes: KvSizes, mantissa: int, high: int, initial: int, local: int, nearest: bool, smoothed: int, rotated: bool, /) -> BfpKvStore: ...

_native.SparseKvStore.__init__$:
    def __init__(self, sizes: KvSizes, type: str, /) -> None: ...

_native.SparseKvStore.load$:
    @staticmethod
    def load(lengths: Sequence[int], parts: Sequence[tuple[str, bytes]], sizes: KvSizes, type: str, /) -> SparseKvStore: ...

_native.StepBlock.__init__$:
    def __init__(self, *, qkv: list[tuple[Any, ...]], o: tuple[Any, ...] | None, networks: list[tuple[list[tuple[Any, ...]], tuple[Any, ...]]], router: tuple[Any, ...] | None, chosen: int, renormalised: bool, attn_norm: const_float32_1d, attn_post_norm: const_float32_1d, ffn_norm: const_float32_1d, ffn_post_norm: const_float32_1d, q_norm: const_float32_1d, k_norm: const_float32_1d, sinks: const_float32_1d, heads: int, kv_heads: int, head_dim: int, scaling: float, window: int, softcap: float, rotary: int, interleaved: bool, activation: str, alpha: float, limit: float, residual_multiplier: float) -> None: ...

_native.Stepper.__init__$:
    def __init__(self, *, embedding: tuple[Any, ...], blocks: list[StepBlock], norm: const_float32_1d, output: tuple[Any, ...], rotaries: Sequence[tuple[Sequence[float], float, bool]], longest: int, epsilon: float, embedding_multiplier: float, logits_scaling: float, softcap: float, kv: str, pages: int, page_tokens: int, tokens: Sequence[int], exchange: Exchange | None) -> None: ...
