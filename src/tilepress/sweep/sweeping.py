"""A sweep: the points of a grid that are not finished yet, through an executor, into a folder."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ..cluster import Executor
from ..cluster.batch import Batch, Outcome, Settings, name_of
from ..records import Record
from .folder import Finished, finished_in
from .grid import Grid
from .studies import RUN

SHARES = 4  # batches a worker at least, where points are few


@dataclass
class Swept:
    """`records`: of the grid's finished points, by point, in its order at the end; `failures`: why others have none.
    `computed`: how many points were computed by this call."""

    grid: Grid
    records: dict[str, list[Record]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    computed: int = 0

    @property
    def done(self) -> int:
        return len(self.records) + len(self.failures)


def sweep(
    grid: Grid, folder: Path, executor: Executor, command: str = "", track: Callable[[Swept], None] = lambda _: None
) -> Swept:
    """Compute what `folder` has not yet, a file a batch; `track` sees how far it is after each. Points that fail do not
    stop the others, and are tried again by the next call. `command`: what the records say gave them."""
    with finished_in(folder) as finished:
        points = {name_of(point): point for point in grid.points}
        kept = {name: finished.records[name] for name in points if name in finished.records}
        swept = Swept(grid, kept)
        track(swept)
        missing = {name: point for name, point in points.items() if name not in kept}
        batches = list(_batches(list(missing.values()), grid.study.batch, executor.workers, command))
        with closing(executor.run(batches)) as ended:
            for batch, outcomes in ended:
                _enter(swept, finished, batch, outcomes)
                track(swept)
    swept.records = {name: swept.records[name] for name in points if name in swept.records}
    return swept


def _batches(points: Sequence[Settings], most: int, workers: int, command: str) -> Iterator[Batch]:
    size = min(most, -(-len(points) // (SHARES * workers)))
    for start in range(0, len(points), size or 1):
        yield Batch(RUN, points[start : start + size], command)


def _enter(swept: Swept, finished: Finished, batch: Batch, outcomes: Sequence[Outcome]) -> None:
    ended = {name_of(point): outcome for point, outcome in zip(batch.points, outcomes, strict=True)}
    results = {name: outcome for name, outcome in ended.items() if not isinstance(outcome, str)}
    if results:
        finished.keep(batch.name, results)
    swept.records |= {name: finished.records[name] for name in results}
    swept.failures |= {name: outcome for name, outcome in ended.items() if isinstance(outcome, str)}
    swept.computed += len(batch.points)
