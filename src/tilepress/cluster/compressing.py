"""A model compressed over workers, with the bytes of a single process.

Each worker has some of the calibration windows, in order, and runs blocks on them. Sums over windows are made in the
order of windows, as one process does: a piece of a layer's statistics, some rows of its Hessian, goes from worker to
worker, and each adds its windows. So all workers add at once, each to another piece. The owner of a layer is given all
of its pieces, compresses it, and gives it to all workers, which then compute what the block gives. This process keeps
a copy of that on the disk, from which another crew goes on where a worker dies.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..models.blocks import linear_layers
from ..models.calibration import in_float32
from ..models.compress import Compression
from ..models.compress_to_folder import Opened, Outcome, compress_folder
from ..models.recipe import Recipe
from ..models.smoothing import find_attention
from ..models.storage import Layer, Progress, Storage
from .batch import ClusterError
from .crew import WorkerLost
from .executor import ATTEMPTS, InProcess
from .local import LocalExecutor
from .member import Job, Packed, contents_of
from .on_ray import RayExecutor
from .team import Shapes, Team


def compress_over(
    executor: InProcess | LocalExecutor | RayExecutor,
    name: str,
    out: str | Path,
    recipe: Recipe | Mapping[str, Any] | str | Path,
    **options: Any,
) -> Outcome:
    """`tilepress.models.compress_folder` over the workers of `executor`, with its `options` and the same bytes.

    Where a worker dies, the others and a new one compress that block again. ClusterError where workers die three times
    over a block, or a machine has another version or no such model; what is finished stays. Every machine needs the
    model by its name; nothing else is shared.
    """
    make = None if isinstance(executor, InProcess) else partial(OverWorkers, executor)
    return compress_folder(name, out, recipe, make=make, **options)


class OverWorkers(Compression):
    """Blocks are compressed by a team, all else here; so are blocks whose layers are trained together."""

    def __init__(
        self,
        executor: LocalExecutor | RayExecutor,
        opened: Opened,
        model: nn.Module,
        recipe: Recipe,
        windows: Tensor | None,
        storage: Storage,
    ) -> None:
        super().__init__(model, recipe, windows, storage)
        name = str(Path(opened.name).resolve()) if Path(opened.name).exists() else opened.name
        self._job = Job(name, contents_of(opened.shards), opened.allowed, recipe.model_dump(mode="json"))
        self._executor = executor
        self._team: Team | None = None

    def run(self, progress: Callable[[Progress], None] = lambda _: None) -> list[Layer]:
        try:
            return super().run(progress)
        finally:
            self._dismiss()

    def _compress_block(self, stage: str) -> list[Layer]:
        if self.recipe.weights.reconstruct:
            return super()._compress_block(stage)
        self.storage.fetch(stage)
        layers = linear_layers(self.blocks[stage], stage)
        types = {name: layer.weight.dtype for name, layer in layers.items()}
        shapes = {name: (layer.out_features, layer.in_features) for name, layer in layers.items()}
        packed = self._by_team(stage, shapes, self._folded(stage))
        for one in packed:
            self.put_packed(one.layer.name, types[one.layer.name], one.matrix, one.layer)
        return [one.layer for one in packed]

    def _by_team(self, stage: str, shapes: Shapes, folded: Mapping[str, Tensor]) -> list[Packed]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._present_team().compress(stage, shapes, folded)
            except WorkerLost as error:
                self._dismiss()
                if attempt == ATTEMPTS:
                    raise ClusterError(f"{stage} is given up after {ATTEMPTS} attempts: {error}") from error
        raise AssertionError("not reached")

    def _present_team(self) -> Team:
        if self._team is None:
            most = len(self.stages) if self.windows is None else len(self.windows)
            crew = self._executor.crew(most)
            self._team = Team(crew, self._executor.threads, self.recipe, self.hidden_states)
            self._team.open(self._job)
        return self._team

    def _dismiss(self) -> None:
        if self._team is not None:
            self._team.crew.close()
            self._team = None

    def _folded(self, stage: str) -> dict[str, Tensor]:
        """The parameters that smoothing changes, which looks at a few windows alone, here."""
        if not self.recipe.folds_scales:
            return {}
        assert self.hidden_states is not None
        block = self.blocks[stage]
        with in_float32(block):
            self._smooth(stage, self.hidden_states)
            attention = {id(one) for one in find_attention(block, stage).parameters()}
            named = self.model.named_parameters()
            return {name: one.detach().clone() for name, one in named if id(one) in attention}
