"""Processes of this machine, each with a share of its threads."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from selectors import EVENT_READ, DefaultSelector

from .batch import Batch, Outcome
from .executor import ATTEMPTS, Ended, InProcess
from .local_crew import LocalCrew, ending

PATIENCE = 5  # seconds that a worker has to clean up


class LocalExecutor:
    """`workers` processes of `threads` threads each; of a share of this machine's CPUs if not given."""

    def __init__(self, workers: int, threads: int | None = None) -> None:
        if workers < 1 or (threads is not None and threads < 1):
            raise ValueError(f"at least one worker with one thread is needed, not {workers} with {threads}")
        self.workers = workers
        self.threads = threads or max((os.cpu_count() or 1) // workers, 1)

    def run(self, batches: Iterable[Batch]) -> Generator[Ended, None, None]:
        waiting, workers = iter(batches), list[_Worker]()
        try:
            for batch in islice(waiting, self.workers):
                workers.append(_Worker(self.threads))
                workers[-1].take(batch)
            yield from _run(workers, waiting)
        finally:
            for worker in workers:
                worker.stop()

    def crew(self, most: int) -> LocalCrew:
        """Processes that keep an object; `most` of them at most."""
        return LocalCrew(min(self.workers, most), self.threads)


def local_executor(workers: int, threads: int | None = None) -> InProcess | LocalExecutor:
    """One worker with all threads needs no process of its own."""
    return InProcess() if workers == 1 and threads is None else LocalExecutor(workers, threads)


def _run(workers: "list[_Worker]", waiting: Iterator[Batch]) -> Generator[Ended, None, None]:
    deaths: Counter[str] = Counter()
    while busy := [worker for worker in workers if worker.batch]:
        for worker in _ready(busy):
            batch, outcomes = worker.ended()
            if outcomes is None:
                deaths[batch.name] += 1
                reason = worker.restart()
                if deaths[batch.name] < ATTEMPTS:
                    worker.take(batch)
                    continue
                outcomes = batch.lost(f"its worker process {reason}, {ATTEMPTS} times")
            yield batch, outcomes
            for following in islice(waiting, 1):
                worker.take(following)


def _ready(workers: "list[_Worker]") -> "list[_Worker]":
    with DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.process.stdout or 0, EVENT_READ, worker)
        return [key.data for key, _ in selector.select()]


class _Worker:
    """A process that runs `worker.main`, and the batch that it has."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.batch: Batch | None = None
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        """In a session of its own: an interrupt at the terminal is for the sweep, which then stops its workers."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": str(self.threads)},
            encoding="utf-8",
            start_new_session=True,
        )

    def take(self, batch: Batch) -> None:
        assert self.process.stdin
        self.batch = batch
        with suppress(BrokenPipeError):  # it died: its output ends, which `ended` sees
            self.process.stdin.write(json.dumps(batch.call) + "\n")
            self.process.stdin.flush()

    def ended(self) -> tuple[Batch, list[Outcome] | None]:
        """What it had, with the outcomes; None where it died over it."""
        assert self.process.stdout and self.batch
        batch, self.batch = self.batch, None
        line = self.process.stdout.readline()
        return batch, batch.outcomes(json.loads(line)) if line.endswith("\n") else None

    def restart(self) -> str:
        """Another process in its place; how this one ended."""
        self.stop()
        status = self.process.returncode
        self.process = self._start()
        return ending(status)

    def stop(self) -> None:
        assert self.process.stdin and self.process.stdout
        if self.batch:
            self.process.terminate()
        with suppress(BrokenPipeError):
            self.process.stdin.close()  # an idle one ends by itself
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
