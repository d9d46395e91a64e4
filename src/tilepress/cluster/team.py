"""A crew at work on a model, block by block. Nothing of a block stays in this process before it is done."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from torch import Tensor

from ..compression.threads import PANEL, panels
from ..models.hidden_states import HiddenStates
from ..models.layer_inputs import find_leaders
from ..models.recipe import Recipe
from ..models.storage import Stream
from .crew import Crew
from .member import Given, Job, Packed, Shared, open_member

OPEN = f"{open_member.__module__}:{open_member.__name__}"
Shapes = Mapping[str, tuple[int, int]]  # of a block's layers, by name: neurons, inputs


class Team:
    """Members of `crew`, whose pieces of statistics are of a panel for each of their `threads`. `hidden`: the copy of
    all hidden states that is kept here, None where none are needed."""

    def __init__(self, crew: Crew, threads: int, recipe: Recipe, hidden: HiddenStates | None) -> None:
        self.crew, self._recipe, self._hidden = crew, recipe, hidden
        self._rows, self._is_fresh = PANEL * threads, True
        self._shares = shares(0 if hidden is None else len(hidden.windows), crew.size)

    def open(self, job: Job) -> None:
        """Every worker opens the model."""
        own = [None if self._hidden is None else self._hidden.windows[share].clone() for share in self._shares]
        self._wait([self.crew.start(worker, OPEN, job, windows) for worker, windows in enumerate(own)])

    def compress(self, stage: str, shapes: Shapes, folded: Mapping[str, Tensor]) -> list[Packed]:
        """The block's layers, in order; what the block gives is then among the hidden states.

        folded: parameters that smoothing has changed.
        """
        self._begin(stage, folded)
        packed: dict[str, Any] = {}
        for names in self._turns(stage, shapes):
            compressed = self._compressed(stage, {name: shapes[name] for name in names})
            if self._recipe.needs_drift:
                self._all("take", *compressed.values())
            packed |= compressed
        inputs = self._all("hand_on", stage, *(packed[name] for name in shapes))
        layers = self._wait(packed[name] for name in shapes)
        self._keep(stage, "compressed", inputs)
        return layers

    def _begin(self, stage: str, folded: Mapping[str, Tensor]) -> None:
        """Workers that have just started are given their hidden states; the others have kept them."""
        streams = self._hidden.streams if self._hidden is not None and self._is_fresh else ()
        given = [
            {stream: self._hidden.given(stage, stream, share) for stream in streams if self._hidden}
            for share in self._shares
        ]
        self._is_fresh = False
        begun = [self.crew.call(worker, "begin", stage, folded, one) for worker, one in enumerate(given)]
        self._keep(stage, "dense", self._wait(begun))

    def _turns(self, stage: str, shapes: Shapes) -> list[list[str]]:
        """Layers that are compressed together; all, unless some are to make up for what those before them lost."""
        if not self._recipe.needs_drift:
            return [list(shapes)]
        turns: list[list[str]] = self.crew.get(self.crew.call(0, "turns", stage))
        return turns

    def _compressed(self, stage: str, shapes: Shapes) -> dict[str, Any]:
        """References to the layers, each compressed by its owner."""
        pieces = {} if self._hidden is None else self._statistics(stage, shapes)
        owner = owners(shapes, self.crew.size)
        return {name: self.crew.call(owner[name], "compress", name, *pieces.get(name, ())) for name in shapes}

    def _statistics(self, stage: str, shapes: Shapes) -> dict[str, list[Any]]:
        """Name of each layer that is given something → references to the pieces of its statistics."""
        seen: list[list[Shared]] = self._all("gather", stage, list(shapes))
        leaders: dict[str, str] = {}
        for shared in chain.from_iterable(seen):
            find_leaders(leaders, shared)
        reached = [{name for shared in one for name, _ in shared} for one in seen]
        pieces = {
            leader: [self._sum(leader, rows, reached) for rows in self._pieces(shapes[leader][1])]
            for leader in dict.fromkeys(leaders.values())
        }
        return {name: pieces[leader] for name, leader in leaders.items()}

    def _pieces(self, inputs: int) -> list[slice]:
        return panels(inputs, self._rows) if self._recipe.needs_hessian else [slice(0, inputs)]

    def _sum(self, name: str, rows: slice, reached: Sequence[set[str]]) -> Any:
        """A reference to a piece that goes from worker to worker, in the order of their windows."""
        piece = None
        for worker, names in enumerate(reached):
            if name in names:
                piece = self.crew.call(worker, "add", name, rows, piece)
        return piece

    def _keep(self, stage: str, stream: Stream, given: Sequence[Given | None]) -> None:
        """Copy here what the workers have for the next block."""
        for share, one in zip(self._shares, given, strict=True):
            if one is not None and self._hidden is not None:
                self._hidden.put(self._hidden.following(stage), stream, share, one)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """What every worker gives."""
        return self._wait([self.crew.call(worker, method, *arguments) for worker in range(self.crew.size)])

    def _wait(self, references: Iterable[Any]) -> list[Any]:
        return [self.crew.get(one) for one in references]


def shares(windows: int, workers: int) -> list[slice]:
    """Windows in order, so many to each worker, give or take one."""
    ends = [windows * worker // workers for worker in range(workers + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def owners(shapes: Shapes, workers: int) -> dict[str, int]:
    """The worker that compresses each layer: the largest layers first, each to the one with the least to do."""
    work, owner = [0] * workers, {}
    for name, (neurons, inputs) in sorted(shapes.items(), key=lambda item: -item[1][0] * item[1][1] ** 2):
        owner[name] = work.index(min(work))
        work[owner[name]] += neurons * inputs**2
    return owner
