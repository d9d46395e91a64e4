"""What there is to do: the matrix products of a decoder, for a prompt or for the next token."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ...formats import BFP, TENSOR_TYPES, Anda, TensorType, parse_activations, parse_weight
from ...formats.kv import KvBfp, parse_kv
from ...hardware import Accelerator, MachineError
from ..layers import Projection, Transformer

Stage = Literal["prefill", "decode"]
Scope = Literal["linear", "attention", "all"]
HALF_BITS = 16
INT8_BITS = 8
INT4 = "int4:g128"
SOFTMAX_OPERATIONS = 5  # of a score: largest, difference, exponential, sum, quotient
CONVERSION_OPERATIONS = 1  # of an output: FP32 to FP16
CHUNK = 4096  # tokens whose values are summed at once; sums of chunks are added by the vector unit


@dataclass(frozen=True)
class Operand:
    """Numbers as the array takes them, and the `bits` that each takes in memory."""

    kind: Literal["fp16", "bfp", "int8", "int4"]
    bits: float
    mantissa: int = 0


@dataclass(frozen=True)
class Gemm:
    """`count` products of [rows, inputs] with [inputs, columns]. `out`: outputs as memory takes them, of 0 bits where
    none leaves the chip. `vector`: operations on each output after the array; they and its conversion take no time if
    `hidden`."""

    name: str
    rows: int
    inputs: int
    columns: int
    count: int
    activations: Operand
    other: Operand
    out: Operand
    vector: int = CONVERSION_OPERATIONS
    hidden: bool = False

    def __post_init__(self) -> None:
        for field in ("rows", "inputs", "columns", "count"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} is at least 1, not {getattr(self, field)}")

    @property
    def products(self) -> int:
        return self.rows * self.inputs * self.columns * self.count

    @property
    def is_converted(self) -> bool:
        """Whether outputs are rounded to block floating point, or quantised to INT8, on their way to memory."""
        return self.out.kind in ("bfp", "int8") and self.out.bits > 0


@dataclass(frozen=True)
class Task:
    """A model's work: the whole prompt of `tokens`, or one more token after them, for `batch` sequences.

    `activations`: fp, bfp:gN:mN, or anda:… with a mantissa for each tensor type, for machines that compute with them.
    `kv`: the format of keys and values; the machine's own if it is empty. `scope`: which products count. `head`: the
    last matrix, over the vocabulary, too. `products_only`: what follows an array takes no time, as in both papers.
    """

    model: Transformer
    stage: Stage = "prefill"
    tokens: int = 2048
    batch: int = 1
    activations: str = "anda:8,8,8,8"
    weights: str = INT4
    kv: str = ""
    scope: Scope = "all"
    head: bool = False
    products_only: bool = False

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.batch < 1:
            raise ValueError(f"at least one token and one sequence, not {self.tokens} and {self.batch}")

    @property
    def rows(self) -> int:
        """Tokens that pass through the linear layers."""
        return self.batch * (self.tokens if self.stage == "prefill" else 1)

    @property
    def queries(self) -> int:
        return self.tokens if self.stage == "prefill" else 1


def gemms(task: Task, machine: Accelerator) -> list[Gemm]:
    """Those of one layer, each as often as the model has layers, and of the head."""
    products: list[Gemm] = []
    if task.scope != "attention":
        products += [_linear(task, machine, one) for one in task.model.projections]
    if task.scope != "linear":
        products += _attention(task, machine)
    whole = [replace(one, count=one.count * task.model.layers) for one in products]
    if task.head and task.scope != "attention":
        whole.append(_linear(task, machine, Projection("head", "qkv", task.model.vocabulary, task.model.hidden)))
    return [replace(one, hidden=task.products_only) for one in whole]


def weight_operand(task: Task, machine: Accelerator) -> Operand:
    """The task's weights; a machine that takes INT8 alone has those instead of what most take."""
    if task.weights == INT4 and all(mode.other == "int8" for mode in machine.modes):
        return Operand("int8", INT8_BITS)
    format = parse_weight(task.weights)
    kinds: dict[str, Literal["int4", "int8"]] = {"int4": "int4", "int8": "int8"}
    if format.element.name not in kinds:
        raise MachineError(f"arrays multiply weights of int4 or int8, not {task.weights}")
    return Operand(kinds[format.element.name], format.bits_per_weight())


def activation_operand(task: Task, machine: Accelerator, type: TensorType) -> Operand:
    """Inputs of linear layers as the machine stores them, block floating point in groups of its own size."""
    if machine.stores == "bfp":
        _check_group(task.activations, machine)
        mantissa = mantissas(task.activations)[TENSOR_TYPES.index(type)]
        return Operand("bfp", BFP(machine.array.group, mantissa).bits_per_value, mantissa)
    return Operand(machine.stores, HALF_BITS if machine.stores == "fp16" else INT8_BITS)


def _check_group(activations: str, machine: Accelerator) -> None:
    """A unit sums groups of its own size: one exponent each. Mantissas alone leave the group to the machine."""
    format, group = parse_activations(activations), machine.array.group
    names_none = isinstance(format, Anda) and ":g" not in activations
    if isinstance(format, BFP | Anda) and not names_none and format.group != group:
        instead, alone = replace(format, group=group), ",".join(map(str, mantissas(activations)))
        raise MachineError(
            f"{machine.name} computes in groups of {group}, not of {format.group}: give {instead}, or mantissas alone, "
            f"anda:{alone}"
        )


def mantissas(activations: str) -> tuple[int, int, int, int]:
    """Of the four tensor types."""
    format = parse_activations(activations)
    if isinstance(format, Anda):
        return format.mantissas
    if isinstance(format, BFP):
        return format.mantissa, format.mantissa, format.mantissa, format.mantissa
    raise MachineError(f"{activations} says no mantissas: give bfp:g32:m8 or anda:7,7,6,5, say")


def _linear(task: Task, machine: Accelerator, one: Projection) -> Gemm:
    activations, weights = activation_operand(task, machine, one.type), weight_operand(task, machine)
    out = _written(task, machine, one.name)
    return Gemm(one.name, task.rows, one.inputs, one.neurons, 1, activations, weights, out)


def _written(task: Task, machine: Accelerator, name: str) -> Operand:
    """Outputs as memory takes them: as the next linear layer does. Queries go to attention, keys and values to the
    cache; a gate meets the up projection on chip; logits stay as they are."""
    follows: dict[str, TensorType] = {"o": "u", "up": "d", "down": "qkv"}
    if name in follows:
        return activation_operand(task, machine, follows[name])
    if name == "gate":
        return Operand("fp16", 0.0)
    if name in ("k", "v"):
        return _kept(task, machine)
    return _attended(machine) if name == "q" else Operand("fp16", HALF_BITS)


def _kept(task: Task, machine: Accelerator) -> Operand:
    """A key's or a value's number in the cache, where some tokens may have more bits: on average."""
    kv = parse_kv(task.kv or machine.kv)
    bits = kv.bits(task.tokens) / (2 * task.tokens)
    return Operand("bfp", bits, kv.bfp.mantissa) if kv.bfp else Operand("fp16", bits)


def _attended(machine: Accelerator) -> Operand:
    """As attention takes them: FP16 unless the array attends in block floating point."""
    mode = next((mode for mode in machine.modes if mode.other == "bfp"), None)
    if mode is None or mode.mantissas is None:
        return Operand("fp16", HALF_BITS)
    return Operand("bfp", BFP(machine.array.group, mode.mantissas[1]).bits_per_value, mode.mantissas[1])


def _attention(task: Task, machine: Accelerator) -> Iterator[Gemm]:
    """Scores and weighted values, for each head of keys all its queries at once; where some tokens keep more bits, in
    two parts."""
    model, query = task.model, _attended(machine)
    rows, count = task.queries * model.heads // model.kv_heads, model.kv_heads * task.batch
    for label, tokens, other in _cached(task, machine, query.kind == "bfp"):
        part = f" ({label})" if label else ""
        shapes = (rows, model.head_size, tokens, count)
        yield Gemm(f"scores{part}", *shapes, query, other, query, SOFTMAX_OPERATIONS)
        for chunk, times in _chunks(tokens):
            shapes = (rows, chunk, model.head_size, count * times)
            # Outputs leave once, however many parts have added to them.
            out = replace(query, bits=query.bits * chunk / task.tokens)
            yield Gemm(f"values{part}", *shapes, query, other, out, 1 + CONVERSION_OPERATIONS)


def _chunks(tokens: int) -> Iterator[tuple[int, int]]:
    """Length of a chunk, and how many there are."""
    whole, rest = divmod(tokens, CHUNK)
    if whole:
        yield CHUNK, whole
    if rest:
        yield rest, 1


def _cached(task: Task, machine: Accelerator, bfp: bool) -> Iterator[tuple[str, int, Operand]]:
    """What part of the cache, how many tokens, and in which format."""
    kv = parse_kv(task.kv or machine.kv)
    if kv.is_sparse:
        raise MachineError(f"arrays read dense keys and values, not {kv}")
    number = kv.number
    if not isinstance(number, KvBfp):
        yield "", task.tokens, Operand("fp16", HALF_BITS)
        return
    if not bfp:
        raise MachineError(f"{machine.name} attends with FP16 and cannot multiply fp16 × bfp m{number.mantissa}")
    wide = min(task.tokens, number.initial + number.local)
    exponent = 5 / number.group
    if task.tokens > wide:
        yield "", task.tokens - wide, Operand("bfp", 1 + number.mantissa + exponent, number.mantissa)
    if wide:
        yield "first and last tokens", wide, Operand("bfp", 1 + number.high + exponent, number.high)
