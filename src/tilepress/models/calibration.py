"""What the layers of a model see when it reads the calibration text: inputs of blocks, and statistics of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..compress import InputStatistics


class CalibrationError(ValueError):
    """A text that is too short, or a model that cannot be run as its blocks are."""


class _Enough(Exception):
    """Raised inside a model's forward pass when all that was wanted of it has been seen."""


@dataclass(frozen=True)
class Call:
    """How the model calls one of its blocks, apart from the hidden states: the same for every sequence of a length."""

    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self, block: nn.Module, hidden: Tensor) -> Tensor:
        return _hidden(block(hidden, *self.arguments, **self.options))


@dataclass(frozen=True)
class Chain:
    """Blocks that the model runs one after another; `tail`: what they give after the hidden states, None if nothing."""

    blocks: Sequence[nn.Module]
    calls: Sequence[Call]
    tail: tuple[Any, ...] | None

    def output(self, hidden: Tensor) -> Any:
        """As a block gives it."""
        return hidden if self.tail is None else (hidden, *self.tail)


def token_windows(tokens: Tensor, sequences: int, length: int, seed: int) -> Tensor:
    """[sequences, length] of `tokens` [count]: windows that begin anywhere, chosen by the seed."""
    if len(tokens) < length:
        raise CalibrationError(
            f"the calibration text has {len(tokens)} tokens, fewer than calibration.length {length}: "
            "give a longer text or a smaller length"
        )
    starts = torch.randint(len(tokens) - length + 1, (sequences,), generator=torch.Generator().manual_seed(seed))
    return torch.stack([tokens[start : start + length] for start in starts.tolist()])


def find_chain(model: nn.Module, blocks: Sequence[nn.Module], tokens: Tensor) -> Chain:
    """How the blocks are called when the model reads `tokens` [length]. Only the first of them is computed; the others
    hand on what they are given, in the form in which the first gives it."""
    calls: list[Call] = []
    outputs: list[Any] = []

    def note(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        calls.append(_call(arguments, options))
        return tree_map(_widened, (arguments, options))

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        outputs.append(output)

    def hand_on(*arguments: Any, **options: Any) -> Any:
        return Chain(blocks, calls, _tail(outputs[0])).output(_first(arguments, options))

    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(_hook(block.register_forward_pre_hook(note, with_kwargs=True)))
        stack.enter_context(_hook(blocks[0].register_forward_hook(keep)))
        stack.enter_context(_hook(blocks[-1].register_forward_hook(_stop)))
        stack.enter_context(_forwards(blocks[1:], hand_on))
        stack.enter_context(in_float32(blocks[0]))
        _run(model, tokens)
    if len(calls) != len(blocks):
        raise CalibrationError(f"the model runs {len(calls)} of its {len(blocks)} blocks: it cannot go block by block")
    return Chain(blocks, calls, _tail(outputs[0]))


def run_packed(block: str, run: Callable[[], Tensor]) -> Tensor:
    """What `run` gives; CalibrationError where the block called `block` has packed layers that its code cannot use."""
    try:
        return run()
    except RuntimeError as error:
        if "memory" in str(error):
            raise
        raise CalibrationError(
            f"{block} does not run with packed layers ({' '.join(str(error).split())}): its code uses the weights of "
            "linear layers itself, so this model cannot be compressed"
        ) from error


def first_inputs(model: nn.Module, first: nn.Module, windows: Tensor) -> Iterator[Tensor]:
    """The hidden states, float32 [1, length, hidden], that the first block is given for each window."""
    caught: list[Tensor] = []

    def catch(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        caught.append(_first(arguments, options).to(torch.float32))
        raise _Enough

    for window in windows:
        with _hook(first.register_forward_pre_hook(catch, with_kwargs=True)):
            _run(model, window)
        yield caught.pop()


def statistics_of(
    layers: Mapping[str, nn.Linear], runs: Iterable[Callable[[], Any]], hessian: bool
) -> dict[str, InputStatistics]:
    """What `layers` are given in all of `runs`; layers that are given the very same tensor share their statistics."""
    found: dict[str, InputStatistics] = {}
    leaders: dict[str, str] = {}
    seen: list[tuple[Tensor, str]] = []

    def watch(name: str, layer: nn.Linear) -> Callable[..., None]:
        def look(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            x = arguments[0]
            if name not in leaders:
                leaders[name] = next((other for tensor, other in seen if tensor is x), name)
                seen.append((x, name))
            if leaders[name] == name:
                try:
                    found.setdefault(name, InputStatistics(layer.in_features, hessian)).add(x)
                except ValueError as error:
                    raise CalibrationError(f"{name}: {error}") from error

        return look

    with ExitStack() as stack:
        for name, layer in layers.items():
            stack.enter_context(_hook(layer.register_forward_pre_hook(watch(name, layer))))
        for run in runs:
            run()
            seen.clear()
    return {name: found[leader] for name, leader in leaders.items()}


def run_around(
    model: nn.Module, chain: Chain | None, output: nn.Module | None, window: Tensor, final: Tensor | None
) -> None:
    """The model without its blocks: they hand on their input, and the last of them `final` [1, length, hidden]
    instead. Ends before `output` computes, which is last and large."""

    def hand_on(*arguments: Any, **options: Any) -> Any:
        assert chain is not None
        return chain.output(_first(arguments, options))

    def hand_out(*arguments: Any, **options: Any) -> Any:
        assert chain is not None and final is not None
        return chain.output(final.to(_first(arguments, options).dtype))

    with ExitStack() as stack:
        if chain is not None:
            stack.enter_context(_forwards(chain.blocks[:-1], hand_on))
            stack.enter_context(_forwards(chain.blocks[-1:], hand_out))
        if output is not None:
            stack.enter_context(_hook(output.register_forward_pre_hook(_stop)))
        _run(model, window)


@contextmanager
def in_float32(module: nn.Module) -> Iterator[None]:
    """The module's floats widened to float32, in which every CPU computes, and narrowed again at the end."""
    types = {name: tensor.dtype for name, tensor in _floats(module)}
    for _, tensor in _floats(module):
        tensor.data = tensor.data.to(torch.float32)
    try:
        yield
    finally:
        for name, tensor in _floats(module):  # what has been replaced meanwhile is not held in memory for this
            tensor.data = tensor.data.to(types.get(name, tensor.dtype))


def _floats(module: nn.Module) -> list[tuple[str, Tensor]]:
    tensors = (*module.named_parameters(), *module.named_buffers())
    return [(name, tensor) for name, tensor in tensors if tensor.is_floating_point()]


def _run(model: nn.Module, tokens: Tensor) -> None:
    options = {"use_cache": False} if hasattr(model, "config") else {}
    try:
        with torch.no_grad():
            model(tokens[None], **options)
    except _Enough:
        pass


def _stop(*_: Any) -> None:
    raise _Enough


def _call(arguments: tuple[Any, ...], options: dict[str, Any]) -> Call:
    """Everything but the hidden states, which come first or by their name; floats widened."""
    rest = {key: value for key, value in options.items() if arguments or key != "hidden_states"}
    return Call(*tree_map(_widened, (arguments[1:], rest)))


def _widened(value: Any) -> Any:
    return value.to(torch.float32) if isinstance(value, Tensor) and value.is_floating_point() else value


def _first(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Tensor:
    hidden = arguments[0] if arguments else options.get("hidden_states")
    if not isinstance(hidden, Tensor):
        raise CalibrationError("the model's blocks do not take hidden states first: it cannot go block by block")
    return hidden


def _hidden(output: Any) -> Tensor:
    """The hidden states in what a block gives: all of it, or the first of it."""
    hidden = output[0] if isinstance(output, tuple) else output
    assert isinstance(hidden, Tensor)
    return hidden


def _tail(output: Any) -> tuple[Any, ...] | None:
    return output[1:] if isinstance(output, tuple) else None


@contextmanager
def _hook(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _forwards(modules: Sequence[nn.Module], forward: Callable[..., Any]) -> Iterator[None]:
    """The modules with another forward."""
    before = [vars(module).get("forward") for module in modules]
    for module in modules:
        module.forward = forward
    try:
        yield
    finally:
        for module, own in zip(modules, before, strict=True):
            del module.forward
            if own is not None:
                module.forward = own
