"""Statistics of what linear layers are given, in the compressed stream and beside it in the dense one."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ..compression import InputStatistics
from ..compression.threads import in_order
from .blocks import pattern
from .calibration import CalibrationError, hooked

# Of a layer: its name, what it is given in the compressed stream, and in the dense one; None where no token reaches the
# layer there, or others do, as with experts.
Input = tuple[str, Tensor, Tensor | None]


def statistics_of(
    layers: Mapping[str, nn.Linear],
    runs: Iterable[Callable[[], Any]],
    hessian: bool,
    *,
    dense_runs: Iterable[Callable[[], Any]] | None = None,
    dense_layers: Mapping[str, nn.Linear] | None = None,
    drift: bool = False,
    each: Callable[..., Iterable[list[Input]]] = in_order,
) -> dict[str, InputStatistics]:
    """What `layers` are given in all of `runs`; layers that are given the very same tensor share their statistics.

    dense_runs: the same in the dense stream, if `drift` is to be gathered; without them it is none. dense_layers: those
        that take the layers' places there, if others do.
    each: `map` for runs that cannot be side by side.
    """
    statistics: dict[str, InputStatistics] = {}
    leaders: dict[str, str] = {}
    pairs = ((run, None) for run in runs) if dense_runs is None else zip(runs, dense_runs, strict=True)
    for inputs in paired_inputs(layers, pairs, dense_layers=dense_layers, each=each):
        find_leaders(leaders, shared_inputs(inputs))
        for name, x, dense in inputs:
            if leaders[name] == name:
                if name not in statistics:
                    statistics[name] = InputStatistics(layers[name].in_features, hessian, x.device, drift=drift)
                add_input(statistics[name], name, x, dense)
    return {name: statistics[leader] for name, leader in leaders.items()}


def shared_inputs(inputs: Iterable[Input]) -> list[tuple[str, int]]:
    """Name of each layer, with a number that is the same for layers that are given the very same tensor."""
    return [(name, id(x)) for name, x, _ in inputs]


def find_leaders(leaders: dict[str, str], shared: Iterable[tuple[str, int]]) -> None:
    """Add layers that `leaders` has not: name → the first of them with the same number, whose statistics it shares."""
    first: dict[int, str] = {}
    for name, number in shared:
        if name not in leaders:
            leaders[name] = first.setdefault(number, name)


def paired_inputs(
    layers: Mapping[str, nn.Linear],
    pairs: Iterable[tuple[Callable[[], Any], Callable[[], Any] | None]],
    *,
    dense_layers: Mapping[str, nn.Linear] | None = None,
    each: Callable[..., Iterable[list[Input]]] = in_order,
) -> Iterator[list[Input]]:
    """What `layers` are given by each pair of runs, of a block in the compressed stream and in the dense one, where
    `dense_layers` may take their places."""
    watch = _Watch()
    with watch.on(layers), watch.on(dense_layers or {}):
        yield from each(watch.pairs_of, pairs)


def turns(layers: Mapping[str, nn.Linear], run: Callable[[], Any], routed: Collection[str]) -> list[list[str]]:
    """The layers' names in the order in which they run; those together that are given the same tensor, or are of one
    kind among a mixture's experts, which are the `routed` ones. What `run` does not reach comes last."""
    watch = _Watch()
    with watch.on(layers):
        seen = dict(watch.inputs_of(run))
    groups: dict[str | int, list[str]] = {}
    for name in (*seen, *(layers.keys() - seen.keys())):
        key = pattern(name) if name in routed or name not in seen else id(seen[name])
        groups.setdefault(key, []).append(name)
    return list(groups.values())


class _Watch:
    """Copies of what layers are given, apart for each thread that runs them. Copies, since a model may go on to change
    the tensor in place."""

    def __init__(self) -> None:
        self._here = threading.local()

    def hook(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def look(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            x, copies = arguments[0], self._here.copies
            mine = next((copied for tensor, copied in copies if tensor is x), None)
            if mine is None:
                mine = x.detach().clone()
                copies.append((x, mine))
            self._here.inputs.append((name, mine))

        return look

    @contextmanager
    def on(self, layers: Mapping[str, nn.Linear]) -> Iterator[None]:
        """Look at what these are given meanwhile."""
        with ExitStack() as stack:
            for name, layer in layers.items():
                stack.enter_context(hooked(layer.register_forward_pre_hook(self.hook(name))))
            yield

    def inputs_of(self, run: Callable[[], Any]) -> list[tuple[str, Tensor]]:
        """Name and input of each layer in the order in which they run; one tensor for layers that share it."""
        self._here.copies, self._here.inputs = [], []
        run()
        self._here.copies = []
        inputs: list[tuple[str, Tensor]] = self._here.inputs
        return inputs

    def pairs_of(self, runs: tuple[Callable[[], Any], Callable[[], Any] | None]) -> list[Input]:
        """Name and input of each layer in the first run, with its input in the second."""
        compressed, dense = self.inputs_of(runs[0]), {} if runs[1] is None else dict(self.inputs_of(runs[1]))
        return [
            (name, x, y if (y := dense.get(name)) is not None and y.shape == x.shape else None)
            for name, x in compressed
        ]


def add_input(statistics: InputStatistics, name: str, x: Tensor, dense: Tensor | None) -> None:
    """Count an input of the layer called `name`, which an error names."""
    try:
        statistics.add(x, dense)
    except ValueError as error:
        raise CalibrationError(f"{name}: {error}") from error
