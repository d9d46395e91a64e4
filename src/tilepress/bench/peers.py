"""Other people's linear layers, to be measured beside ours: only where they run on real kernels.

A peer that would fall into a reference or emulated path on this machine is refused with the reason: beating it would
say nothing. What torch has kernels for is read off its sources (ATen/native/cpu/int8mm_kernel.cpp, int4mm_kernel.cpp)
and `torch.backends.cpu.get_cpu_capability()`, the set they are dispatched by.
"""

import ctypes
import importlib.util
import platform
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..kernels import cpu_features
from ..records import Labels
from .bandwidth import last_level_cache_bytes
from .shapes import Shape

GROUP = 32
MOST_COPIES = 1000  # more than the calls between two passes over other memory, so that none is met again in a cache
_UNKNOWN_CACHE = 64 << 20
TORCH = "torch"  # a pool of threads

Call = Callable[[], Tensor]


@dataclass(frozen=True)
class Entrant:
    """One in the race, with copies of its weights, `weight_bytes` each, that it goes through in turn.

    `kernel(batch)` names what runs. `prepare(x)`, x [batch, inputs], gives the call to be timed: x · Wᵀ with the next
    copy. Entrants of one `pool` share their threads. `labels`: what records call it.
    """

    name: str
    labels: Labels
    weight_bytes: int
    kernel: Callable[[int], str]
    prepare: Callable[[Tensor], Call]
    is_peer: bool = True
    pool: str = TORCH


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    def refusal(self, shape: Shape) -> str | None:
        """Why it is no honest peer here, or None."""

    def load(self, weight: Tensor, allowance: int, threads: int) -> Entrant:
        """Ready to multiply with `weight`, float32 [neurons, inputs], in copies of `allowance` bytes together."""


def copies_of(size: int, allowance: int) -> int:
    """Copies that fill the last-level cache four times, as far as `allowance` bytes go; two at the least."""
    enough = -(-4 * (last_level_cache_bytes() or _UNKNOWN_CACHE) // size)
    return max(2, min(enough, MOST_COPIES, allowance // size))


@dataclass(frozen=True)
class TorchPeer:
    """`pack` turns float32 [neurons, inputs] into the tensors that `multiply` takes after x of type `dtype`."""

    name: str
    operator: str
    dtype: torch.dtype
    check: Callable[[Shape], str | None]
    pack: Callable[[Tensor], Sequence[Tensor]]
    multiply: Callable[..., Tensor]

    def refusal(self, shape: Shape) -> str | None:
        return self.check(shape)

    def load(self, weight: Tensor, allowance: int, threads: int) -> Entrant:
        first = self.pack(weight)
        size = sum(tensor.nbytes for tensor in first)
        copies = [tuple(tensor.clone() for tensor in first) for _ in range(copies_of(size, allowance))]
        turn, shape = cycle(copies), tuple(weight.shape)

        def prepare(x: Tensor) -> Call:
            converted = x.to(self.dtype)
            return lambda: self.multiply(converted, shape, *next(turn))

        return Entrant(self.name, Labels(library=self.name), size, lambda batch: self.operator, prepare)


def _always(shape: Shape) -> None:
    return None


def _bfloat16_check(shape: Shape) -> str | None:
    if {"amx_bf16", "avx512_bf16", "bf16"} & set(cpu_features()):
        return None
    return "this processor has no bfloat16 instructions; torch would emulate them"


def _kleidiai_check(shape: Shape) -> str | None:
    if not torch.backends.kleidiai.is_available():
        return "this torch is built without KleidiAI; it would run its reference"
    if "asimddp" not in cpu_features():
        return "this processor has no dot products (asimddp); torch would run its reference"
    return _whole_groups(shape)


def _int8pack_check(shape: Shape) -> str | None:
    """ARM: NEON for every type. x86: AVX2 and AVX-512 for bfloat16, plain loops for other types."""
    if not _is_arm() and not _torch_has_vectors():
        return "torch has AVX2 and AVX-512 kernels for it here, this processor neither"
    return None if shape.inputs % 16 == 0 else f"its kernels take inputs in steps of 16, not {shape.inputs}"


def _int4pack_check(shape: Shape) -> str | None:
    """On ARM its NEON code widens each weight to float again for every row of x; KleidiAI is torch's path there."""
    if _is_arm():
        return "on ARM torch has no more than a fallback for it; its int4 kernels there are KleidiAI's"
    if not _torch_has_vectors():
        return "torch has AVX2 and AVX-512 kernels for it, this processor neither"
    return _whole_groups(shape) if shape.neurons % 16 == 0 else f"it takes neurons in steps of 16, not {shape.neurons}"


def _whole_groups(shape: Shape) -> str | None:
    return None if shape.inputs % GROUP == 0 else f"it takes whole groups of {GROUP} inputs, not {shape.inputs}"


def _is_arm() -> bool:
    return platform.machine() in ("aarch64", "arm64")


def _torch_has_vectors() -> bool:
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def _int4_codes(weight: Tensor) -> tuple[Tensor, Tensor]:
    """uint8 codes 0…15 for -8…7, [neurons, inputs], and bfloat16 scales [neurons, groups]."""
    grouped = weight.view(len(weight), -1, GROUP)
    scales = (grouped.abs().amax(-1) / 7).to(torch.bfloat16)
    codes = (grouped / scales.float()[..., None]).round_().clamp_(-8, 7).add_(8)
    return codes.to(torch.uint8).view(weight.shape), scales


def _kleidiai_pack(weight: Tensor) -> list[Tensor]:
    """bfloat16 scales and pairs of codes in uint8: with other types torch silently takes its reference."""
    codes, scales = _int4_codes(weight)
    pairs = codes[:, 1::2] << 4 | codes[:, ::2]
    neurons, inputs = weight.shape
    return [torch.ops.aten._dyn_quant_pack_4bit_weight(pairs, scales, None, GROUP, inputs, neurons)]


def _kleidiai_multiply(x: Tensor, shape: tuple[int, int], packed: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten._dyn_quant_matmul_4bit(x, packed, GROUP, shape[1], shape[0])
    return result


def _int8_pack(dtype: torch.dtype, weight: Tensor) -> list[Tensor]:
    scales = weight.abs().amax(1) / 127
    return [(weight / scales[:, None]).round_().to(torch.int8), scales.to(dtype)]


def _int4_pack(weight: Tensor) -> list[Tensor]:
    """Scales and zero points together, [groups, neurons, 2]."""
    codes, scales = _int4_codes(weight)
    pairs = torch.stack([scales, torch.zeros_like(scales)], -1).transpose(0, 1).contiguous()
    return [torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1), pairs]


def _int4_multiply(x: Tensor, shape: tuple[int, int], packed: Tensor, pairs: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, pairs)
    return result


def _float_peer(dtype: torch.dtype, check: Callable[[Shape], str | None]) -> TorchPeer:
    name = f"torch {str(dtype).removeprefix('torch.')}"
    return TorchPeer(name, "F.linear", dtype, check, lambda w: [w.to(dtype)], lambda x, _, w: linear(x, w))


def _int8_peer() -> TorchPeer:
    dtype = torch.float32 if _is_arm() else torch.bfloat16
    multiply = lambda x, _, weight, scales: torch._weight_int8pack_mm(x, weight, scales)  # noqa: E731
    name, operator = "torch int8pack", "_weight_int8pack_mm"
    return TorchPeer(name, operator, dtype, _int8pack_check, lambda w: _int8_pack(dtype, w), multiply)


class _Parameters(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_F32, _Q4_0 = 0, 2  # of ggml_type
_Q4_0_BYTES = 18  # of 32 weights
_GRAPH_NODES = 8  # one product and its two operands, with room to spare
_P, _N, _INT, _LONG = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_init": (_P, [_Parameters]),
    "ggml_free": (None, [_P]),
    "ggml_log_set": (None, [_P, _P]),
    "ggml_tensor_overhead": (_N, []),
    "ggml_graph_overhead_custom": (_N, [_N, ctypes.c_bool]),
    "ggml_new_tensor_2d": (_P, [_P, _INT, _LONG, _LONG]),
    "ggml_new_graph_custom": (_P, [_P, _N, ctypes.c_bool]),
    "ggml_get_data": (_P, [_P]),
    "ggml_mul_mat": (_P, [_P, _P, _P]),
    "ggml_build_forward_expand": (None, [_P, _P]),
    "ggml_quantize_chunk": (_N, [_INT, _P, _P, _LONG, _LONG, _LONG, _P]),
    "ggml_backend_cpu_init": (_P, []),
    "ggml_backend_cpu_set_n_threads": (None, [_P, _INT]),
    "ggml_backend_cpu_buffer_type": (_P, []),
    "ggml_backend_free": (None, [_P]),
    "ggml_backend_get_device": (_P, [_P]),
    "ggml_backend_dev_backend_reg": (_P, [_P]),
    "ggml_backend_reg_get_proc_address": (_P, [_P, ctypes.c_char_p]),
    "ggml_backend_supports_op": (ctypes.c_bool, [_P, _P]),
    "ggml_backend_graph_compute": (_INT, [_P, _P]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (_P, [_P, _P]),
    "ggml_backend_buft_name": (ctypes.c_char_p, [_P]),
    "ggml_backend_buft_get_alloc_size": (_N, [_P, _P]),
    "ggml_backend_buffer_free": (None, [_P]),
    "ggml_backend_tensor_alloc": (_INT, [_P, _P, _P]),
    "ggml_backend_tensor_set": (None, [_P, _P, _N, _N]),
}
_BUILT_WITH = {
    "asimddp": "ggml_cpu_has_dotprod",
    "i8mm": "ggml_cpu_has_matmul_int8",
    "avx2": "ggml_cpu_has_avx2",
    "avx512f": "ggml_cpu_has_avx512",
    "avx512_vnni": "ggml_cpu_has_avx512_vnni",
    "amx_int8": "ggml_cpu_has_amx_int8",
}
_SILENCE = ctypes.CFUNCTYPE(None, _INT, ctypes.c_char_p, _P)(lambda level, text, data: None)


@lru_cache(maxsize=1)
def _ggml() -> Any:
    """ggml as it lies in the package llama_cpp; OSError or AttributeError where it is not whole."""
    package = importlib.util.find_spec("llama_cpp")
    if package is None or package.origin is None:
        raise OSError("llama-cpp-python is not installed: pip install 'tilepress[peers]'")
    library = ctypes.CDLL(str(Path(package.origin).parent / "lib/libggml.so"))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.ggml_log_set(_SILENCE, None)
    return library


class _Memory:
    """A ggml context for so many tensors and graphs, and the buffer its tensors lie in; both go with the object."""

    def __init__(self, tensors: int, graphs: int = 0) -> None:
        size = tensors * _ggml().ggml_tensor_overhead()
        size += graphs * _ggml().ggml_graph_overhead_custom(_GRAPH_NODES, False)
        self.context = _ggml().ggml_init(_Parameters(size, None, True))
        self.buffer: int | None = None
        weakref.finalize(self, _ggml().ggml_free, self.context)

    def matrix(self, type: int, rows: int, cols: int) -> int:
        tensor: int = _ggml().ggml_new_tensor_2d(self.context, type, cols, rows)
        return tensor

    def place(self, buffer_type: int) -> None:
        self.buffer = _ggml().ggml_backend_alloc_ctx_tensors_from_buft(self.context, buffer_type)
        if not self.buffer:
            raise RuntimeError("ggml found no memory for its tensors")
        weakref.finalize(self, _ggml().ggml_backend_buffer_free, self.buffer)


class _GgmlMatrices:
    """Copies of one matrix in Q4_0, laid out as llama.cpp does when it loads a model: by the first of the processor's
    own layouts (AMX, repacked rows) that takes it."""

    def __init__(self, weight: Tensor, allowance: int, threads: int) -> None:
        self.rows, self.cols = weight.shape
        self.backend = _ggml().ggml_backend_cpu_init()
        weakref.finalize(self, _ggml().ggml_backend_free, self.backend)
        _ggml().ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.layout = next(layout for layout in self._layouts() if self._takes(layout))
        self.nbytes = self.rows * self.cols // GROUP * _Q4_0_BYTES
        count = copies_of(self.nbytes, allowance)
        self.memory = _Memory(count)
        self.copies = [self.memory.matrix(_Q4_0, self.rows, self.cols) for _ in range(count)]
        self.memory.place(self.layout)
        self._fill(weight.contiguous())

    def kernel(self, batch: int) -> str:
        name: bytes = _ggml().ggml_backend_buft_name(self.layout)
        return f"ggml_mul_mat/{name.decode()}"

    def prepare(self, x: Tensor) -> Call:
        """The result is overwritten by the next call, and gone with it."""
        data, plans = _Memory(2), _Memory(len(self.copies), len(self.copies))
        inputs, outputs = data.matrix(_F32, len(x), self.cols), data.matrix(_F32, len(x), self.rows)
        data.place(_ggml().ggml_backend_cpu_buffer_type())
        values = x.to(torch.float32).contiguous()
        _ggml().ggml_backend_tensor_set(inputs, values.data_ptr(), 0, values.nbytes)
        address = _ggml().ggml_get_data(outputs)
        turn = cycle([self._graph(plans, weight, inputs, data.buffer, address) for weight in self.copies])
        array = (ctypes.c_float * (len(x) * self.rows)).from_address(address)
        y, compute = torch.frombuffer(array, dtype=torch.float32).view(len(x), self.rows), self._compute

        def call(memory: tuple[_Memory, _Memory] = (data, plans)) -> Tensor:
            compute(next(turn))
            return y

        return call

    def _compute(self, graph: int) -> None:
        if _ggml().ggml_backend_graph_compute(self.backend, graph):
            raise RuntimeError("ggml failed to multiply")

    def _graph(self, plans: _Memory, weight: int, inputs: int, buffer: int | None, address: int) -> int:
        product = _ggml().ggml_mul_mat(plans.context, weight, inputs)
        _ggml().ggml_backend_tensor_alloc(buffer, product, address)
        graph: int = _ggml().ggml_new_graph_custom(plans.context, _GRAPH_NODES, False)
        _ggml().ggml_build_forward_expand(graph, product)
        return graph

    def _layouts(self) -> list[int]:
        device = _ggml().ggml_backend_get_device(self.backend)
        registry = _ggml().ggml_backend_dev_backend_reg(device)
        address = _ggml().ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)(address)(device)
        own: list[int] = list(iter(iter(extra).__next__, None))
        return [*own, _ggml().ggml_backend_cpu_buffer_type()]

    def _takes(self, layout: int) -> bool:
        trial, rest = _Memory(1), _Memory(2)
        weight = trial.matrix(_Q4_0, self.rows, self.cols)
        trial.place(layout)
        product = _ggml().ggml_mul_mat(rest.context, weight, rest.matrix(_F32, 1, self.cols))
        return bool(_ggml().ggml_backend_supports_op(self.backend, product))

    def _fill(self, weight: Tensor) -> None:
        codes = torch.empty(self.nbytes, dtype=torch.uint8)
        _ggml().ggml_quantize_chunk(_Q4_0, weight.data_ptr(), codes.data_ptr(), 0, self.rows, self.cols, None)
        first, *more = self.copies
        _ggml().ggml_backend_tensor_set(first, codes.data_ptr(), 0, self.nbytes)
        size = _ggml().ggml_backend_buft_get_alloc_size(self.layout, first)
        for copy in more:
            ctypes.memmove(_ggml().ggml_get_data(copy), _ggml().ggml_get_data(first), size)


class LlamaCppPeer:
    """llama.cpp's product with Q4_0 weights: int4, an fp16 scale for 32, activations to int8 in groups of 32."""

    name = "llama.cpp Q4_0"

    def refusal(self, shape: Shape) -> str | None:
        try:
            ggml = _ggml()
            missing = [flag for flag, has in _BUILT_WITH.items() if flag in cpu_features() and not getattr(ggml, has)()]
        except (OSError, AttributeError) as error:
            return f"{error}"
        if missing:
            return f"it was built without {', '.join(missing)}, which this processor has; build it here from source"
        return _whole_groups(shape)

    def load(self, weight: Tensor, allowance: int, threads: int) -> Entrant:
        matrices = _GgmlMatrices(weight, allowance, threads)
        labels = Labels(library=self.name)
        return Entrant(self.name, labels, matrices.nbytes, matrices.kernel, matrices.prepare, pool="ggml")


PEERS: list[Peer] = [
    _float_peer(torch.float32, _always),
    _float_peer(torch.bfloat16, _bfloat16_check),
    TorchPeer(
        "torch KleidiAI int4:g32",
        "_dyn_quant_matmul_4bit",
        torch.float32,
        _kleidiai_check,
        _kleidiai_pack,
        _kleidiai_multiply,
    ),
    _int8_peer(),
    TorchPeer(
        "torch int4pack:g32",
        "_weight_int4pack_mm_for_cpu",
        torch.bfloat16,
        _int4pack_check,
        _int4_pack,
        _int4_multiply,
    ),
    LlamaCppPeer(),
]
