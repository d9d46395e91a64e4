"""Hidden states of the calibration windows on their way through the blocks, in one stream or two.

In the compressed stream a block is given what the compressed blocks before it give; in the dense stream, what they gave
before they were compressed. The outputs of a dense block in the dense stream are what a method may aim for, where it
is to make up for the errors of the blocks before it, too.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from .blocks import REST
from .calibration import Chain, Run, State, find_chain, first_inputs, run_around, run_packed
from .device import CPU
from .storage import Storage, Stream


class HiddenStates:
    """Of `windows` [sequences, length]. `streams`: those that are kept, the compressed one always. `device`: where
    blocks run."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Mapping[str, nn.Module],
        windows: Tensor,
        storage: Storage,
        *,
        dense: bool,
        device: torch.device = CPU,
    ) -> None:
        self.windows = windows
        self.streams: tuple[Stream, ...] = ("compressed", "dense") if dense else ("compressed",)
        self._model, self._stages, self._storage = model, [*blocks, REST], storage
        self._states: dict[Stream, list[State]] = {stream: [{}] * len(windows) for stream in self.streams}
        self.chain = self._begin(blocks).on(device)

    def _begin(self, blocks: Mapping[str, nn.Module]) -> Chain:
        """Learn how blocks are called and, unless an earlier run has, what the first is given."""
        name, first = next(iter(blocks.items()))
        if self._storage.finished(name) is None:
            for slot, hidden in enumerate(first_inputs(self._model, first, self.windows)):
                for stream in self.streams:
                    self._hidden(name, stream, hidden.shape)[slot] = hidden
        self._storage.fetch(name)
        chain = find_chain(self._model, list(blocks.values()), self.windows)
        if self._storage.finished(name) is not None:
            self._storage.release(name)
        return chain

    def runs(self, stage: str, stream: Stream = "compressed", block: nn.Module | None = None) -> Iterator[Run]:
        """The block `stage`, as it is now, or `block` in its place, on each window of a stream."""
        inputs, states = self._hidden(stage, stream), self._states[stream]
        return self.chain.runs(self._stages.index(stage), self.windows, inputs, states, block)

    def run(self, stage: str, window: int, stream: Stream = "compressed") -> Run:
        """The block `stage`, as it is now, on one window of a stream."""
        one = slice(window, window + 1)
        inputs, states = self._hidden(stage, stream)[one], self._states[stream][one]
        return next(self.chain.runs(self._stages.index(stage), self.windows[one], inputs, states))

    def hand_on(self, stage: str, stream: Stream = "compressed") -> None:
        """The outputs of the block `stage`, as it is now, become the stream's inputs of the next stage."""
        following = self.following(stage)
        done = self.chain.each(lambda run: (run_packed(stage, run), run.state), self.runs(stage, stream))
        for slot, (output, state) in enumerate(done):
            self._hidden(following, stream, output.shape)[slot] = output
            self._states[stream][slot] = state

    def given(self, stage: str, stream: Stream, windows: slice) -> tuple[Tensor, list[State]]:
        """A copy of what the block `stage` is given for some windows, see `put`."""
        return self._hidden(stage, stream)[windows].clone(), self._states[stream][windows]

    def put(self, stage: str, stream: Stream, windows: slice, given: tuple[Tensor, list[State]]) -> None:
        """What somebody else has computed for the block `stage` to be given for some windows."""
        hidden, states = given
        self._hidden(stage, stream, tuple(hidden.shape[1:]))[windows] = hidden
        self._states[stream][windows] = states

    def outputs(self, stage: str, stream: Stream) -> Tensor:
        """What `hand_on` has left of the stage: [sequences, 1, length, hidden] mostly."""
        return self._hidden(self.following(stage), stream)

    def following(self, stage: str) -> str:
        return self._stages[self._stages.index(stage) + 1]

    def runs_around(self, output: nn.Module | None, stream: Stream = "compressed") -> Iterator[Callable[[], None]]:
        """The model without its blocks on each window, to the inputs of its layer `output`."""
        for window, final in zip(self.windows, self._hidden(REST, stream), strict=True):
            yield partial(run_around, self._model, self.chain, output, window, final)

    def _hidden(self, stage: str, stream: Stream = "compressed", shape: tuple[int, ...] = ()) -> Tensor:
        """[sequences, *shape]; `shape`, [1, length, hidden] mostly, is known where it is first filled."""
        return self._storage.hidden(stage, (len(self.windows), *shape), stream)
