"""Where batches run. There are three executors: this process, processes of this machine, and a Ray cluster."""

from collections.abc import Generator, Iterable, Sequence
from typing import Protocol

from .batch import Batch, Outcome
from .work import answer

ATTEMPTS = 3  # at a batch whose worker dies

Ended = tuple[Batch, Sequence[Outcome]]


class Executor(Protocol):
    """`workers`: how many batches it runs at once."""

    @property
    def workers(self) -> int: ...

    def run(self, batches: Iterable[Batch]) -> Generator[Ended, None, None]:
        """Each batch once, with an outcome for each of its points, in the order in which they end. A batch is taken
        when a worker is free for it, so that what has ended can decide what comes next. One whose worker dies is run
        again. Closing the iterator stops what still runs."""


class InProcess:
    """One batch after the other, here, with all threads."""

    workers = 1

    def run(self, batches: Iterable[Batch]) -> Generator[Ended, None, None]:
        for batch in batches:
            yield batch, batch.outcomes(answer(batch.call))
