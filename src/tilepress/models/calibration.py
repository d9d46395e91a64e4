"""What the blocks of a model see when it reads the calibration text, and how the model runs them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from ..compression.threads import in_order
from .beginning import begun

GROUP = 8  # windows whose calls are looked up before any of them is computed


class CalibrationError(ValueError):
    """A text that is too short, or a model that cannot be run as its blocks are."""


class _Enough(Exception):
    """Raised inside a model's forward pass when all that is needed of it has been seen."""


State = Mapping[str, Mapping[Any, Any]]  # what blocks hand each other beside the hidden states, by argument


@dataclass(frozen=True)
class Call:
    """How the model calls one of its blocks, apart from the hidden states."""

    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    @property
    def mappings(self) -> State:
        """What is in those arguments that are mappings: a block may put something there for blocks after it."""
        return {name: dict(value) for name, value in self.options.items() if isinstance(value, MutableMapping)}

    def to(self, device: torch.device) -> "Call":
        """The same on another device."""
        return Call(*_moved((self.arguments, self.options), device))

    def holding(self, state: State) -> "Call":
        """The same with mappings of its own, and `state` in them."""
        own = {name: copy(self.options[name]) for name in self.mappings}
        for name in own.keys() & state.keys():
            own[name].update(state[name])
        return replace(self, options={**self.options, **own})


class Run:
    """A block on one window. `state`: what the blocks before it have put into mappings for later ones, as Gemma's do
    with keys and values that several blocks share."""

    def __init__(self, call: Call, block: nn.Module, hidden: Tensor, state: State) -> None:
        self._call, self._block, self._hidden, self._before = call.holding(state), block, hidden, state
        self._given = self._call.mappings

    def __call__(self) -> Tensor:
        try:
            return _hidden(self._block(self._hidden, *self._call.arguments, **self._call.options))
        except KeyError as error:
            if not self._given:
                raise
            raise CalibrationError(
                f"{type(self._block).__name__} misses {error} of the blocks before it: a run that was interrupted "
                "cannot go on with such a model; delete its .partial folder and begin again"
            ) from error

    @property
    def state(self) -> State:
        """The same for the block after it, once this one has run."""
        state = {name: dict(content) for name, content in self._before.items()}
        for name, content in self._call.mappings.items():
            new = {key: value for key, value in content.items() if value is not self._given[name].get(key)}
            state[name] = {**state.get(name, {}), **new}
        return state


@dataclass(frozen=True)
class Chain:
    """Blocks that `model` runs one after another. `calls`: how, for the first window. `varies`: whether another window
    has other arguments, such as Gemma's embeddings of its tokens for each block. `tail`: what blocks give after the
    hidden states, None if nothing. `device`: where blocks run, apart from the rest of the model."""

    model: nn.Module
    blocks: Sequence[nn.Module]
    calls: Sequence[Call]
    tail: tuple[Any, ...] | None
    varies: bool = False
    device: torch.device | None = None

    def on(self, device: torch.device) -> "Chain":
        """The same with blocks that run on `device`."""
        return replace(self, calls=[call.to(device) for call in self.calls], device=device)

    def each(self, function: Callable[[Any], Any], runs: Iterable[Any]) -> Iterator[Any]:
        """`in_order`, of what `runs` gives. Where calls vary, finding one puts hooks into the blocks, so that no block
        may run meanwhile."""
        if not self.varies:
            yield from in_order(function, runs)
            return
        rest = iter(runs)
        while group := list(islice(rest, GROUP)):
            yield from in_order(function, group)

    def runs(
        self,
        number: int,
        windows: Iterable[Tensor],
        hidden: Iterable[Tensor],
        states: Iterable[State],
        block: nn.Module | None = None,
    ) -> Iterator[Run]:
        """The block `number`, or `block` in its place, on each window. Its arguments are computed anew where they vary:
        of all windows and blocks they would not fit into memory."""
        for window, one, state in zip(windows, hidden, states, strict=True):
            call = self.calls_for(window, number + 1)[-1] if self.varies else self.calls[number]
            if self.device is not None:
                call, one, state = call.to(self.device), one.to(self.device), _moved(state, self.device)
            yield Run(call, self.blocks[number] if block is None else block, one, state)

    def calls_for(self, window: Tensor, count: int) -> list[Call]:
        """How the first `count` blocks are called for `window`; no block is computed."""
        calls: list[Call] = []

        def note(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            calls.append(_call(arguments, options))
            if len(calls) == count:
                raise _Enough

        with ExitStack() as stack:
            for block in self.blocks[:count]:
                stack.enter_context(hooked(block.register_forward_pre_hook(note, with_kwargs=True)))
            stack.enter_context(_forwards(self.blocks[:count], self.hand_on))
            _run(self.model, window)
        return calls

    def hand_on(self, *arguments: Any, **options: Any) -> Any:
        """A block's forward that gives what it is given."""
        return self.output(_first(arguments, options))

    def output(self, hidden: Tensor) -> Any:
        """As a block gives it."""
        return hidden if self.tail is None else (hidden, *self.tail)


def token_windows(tokens: Tensor, sequences: int, length: int, seed: int, begin: int | None = None) -> Tensor:
    """[sequences, length] of `tokens` [count]: windows that begin anywhere, chosen by the seed, after the token `begin`
    if there is one."""
    if len(tokens) < length:
        raise CalibrationError(
            f"the calibration text has {len(tokens)} tokens, fewer than calibration.length {length}: "
            "give a longer text or a smaller length"
        )
    starts = torch.randint(len(tokens) - length + 1, (sequences,), generator=torch.Generator().manual_seed(seed))
    rest = length - (begin is not None)
    return begun(torch.stack([tokens[start : start + rest] for start in starts.tolist()]), begin)


def find_chain(model: nn.Module, blocks: Sequence[nn.Module], windows: Tensor) -> Chain:
    """How the blocks are called when the model reads `windows` [sequences, length]. Only the first of them is computed,
    once; the rest hand on what they are given, in the form in which the first gives it."""
    chain = _first_chain(model, blocks, windows[0])
    varies = any(_differ(chain.calls, chain.calls_for(window, len(blocks))) for window in windows[1:])
    return replace(chain, varies=varies)


def _first_chain(model: nn.Module, blocks: Sequence[nn.Module], tokens: Tensor) -> Chain:
    """The chain as one window shows it."""
    calls: list[Call] = []
    outputs: list[Any] = []

    def note(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        calls.append(_call(arguments, options))
        return tree_map(_widened, (arguments, options))

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        outputs.append(output)

    def hand_on(*arguments: Any, **options: Any) -> Any:
        return Chain(model, blocks, calls, _tail(outputs[0])).hand_on(*arguments, **options)

    with ExitStack() as stack:
        for block in blocks:
            stack.enter_context(hooked(block.register_forward_pre_hook(note, with_kwargs=True)))
        stack.enter_context(hooked(blocks[0].register_forward_hook(keep)))
        stack.enter_context(hooked(blocks[-1].register_forward_hook(_stop)))
        stack.enter_context(_forwards(blocks[1:], hand_on))
        stack.enter_context(in_float32(blocks[0]))
        _run(model, tokens)
    if len(calls) != len(blocks):
        raise CalibrationError(f"the model runs {len(calls)} of its {len(blocks)} blocks: it cannot go block by block")
    return Chain(model, blocks, calls, _tail(outputs[0]))


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
        with hooked(first.register_forward_pre_hook(catch, with_kwargs=True)):
            _run(model, window)
        yield caught.pop()


def run_around(
    model: nn.Module, chain: Chain | None, output: nn.Module | None, window: Tensor, final: Tensor | None
) -> None:
    """The model without its blocks: they hand on their input, and the last of them `final` [1, length, hidden]
    instead. Ends before `output` computes, which is last and large."""

    def hand_out(*arguments: Any, **options: Any) -> Any:
        assert chain is not None and final is not None
        return chain.output(final.to(_first(arguments, options).dtype))

    with ExitStack() as stack:
        if chain is not None:
            stack.enter_context(_forwards(chain.blocks[:-1], chain.hand_on))
            stack.enter_context(_forwards(chain.blocks[-1:], hand_out))
        if output is not None:
            stack.enter_context(hooked(output.register_forward_pre_hook(_stop)))
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
    options: dict[str, Any] = {"use_cache": False} if hasattr(model, "config") else {}
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        options["decoder_input_ids"] = tokens[None]
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
    return Call(*tree_map(_as_it_is, (arguments[1:], rest)))


def _differ(first: Sequence[Call], second: Sequence[Call]) -> bool:
    """Whether a number or tensor among the arguments is another."""
    sides = ([tree_leaves((call.arguments, dict(call.options))) for call in side] for side in (first, second))
    pairs = (pair for leaves in zip(*sides, strict=True) for pair in zip_longest(*leaves))
    distinct = {(id(one), id(other)): (one, other) for one, other in pairs}  # many are one tensor for all blocks
    return not all(_is_same(*pair) for pair in distinct.values())


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    is_plain = isinstance(one, bool | int | float | str)
    return type(one) is type(other) and (not is_plain or one == other)


def _widened(value: Any) -> Any:
    return value.to(torch.float32) if isinstance(value, Tensor) and value.is_floating_point() else value


def _moved(values: Any, device: torch.device) -> Any:
    """`values` with its tensors on `device`."""
    return tree_map(lambda value: value.to(device) if isinstance(value, Tensor) else value, values)


def _as_it_is(value: Any) -> Any:
    """For later: floats widened, and mappings without what blocks are about to put into them."""
    return copy(value) if isinstance(value, MutableMapping) else _widened(value)


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
def hooked(handle: Any) -> Iterator[None]:
    """The hook that `handle` removes at the end."""
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
