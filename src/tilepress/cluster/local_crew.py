"""A crew of processes of this machine."""

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from .crew import WorkerLost

PROTOCOL = 5


def ending(status: int) -> str:
    """How a process ended."""
    if status == -signal.SIGKILL:
        return "was killed (is there enough memory?)"
    return f"ended by signal {-status}" if status < 0 else f"ended with exit code {status}"


class LocalCrew:
    """`size` processes of `threads` threads. What one of them gives another goes by this process."""

    def __init__(self, size: int, threads: int) -> None:
        self.size = size
        self._workers = [_Worker(threads) for _ in range(size)]

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def start(self, worker: int, function: str, *arguments: Any) -> Future[Any]:
        from .host import versions

        return self._workers[worker].submit("start", (versions(), function, arguments))

    def call(self, worker: int, method: str, *arguments: Any) -> Future[Any]:
        return self._workers[worker].submit("call", (method, *arguments))

    def get(self, reference: Future[Any]) -> Any:
        return reference.result()

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.close()


class _Worker:
    """A process that runs `crew_worker.main`, and a thread here that brings it one call after another."""

    def __init__(self, threads: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.crew_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # an interrupt at the terminal is for the command, which then stops its workers
        )
        self._bringer = ThreadPoolExecutor(1)

    def submit(self, method: str, arguments: tuple[Any, ...]) -> Future[Any]:
        return self._bringer.submit(self._ask, method, arguments)

    def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """References lead to calls that were made earlier, so waiting for them ends."""
        assert self.process.stdin and self.process.stdout
        values = [one.result() if isinstance(one, Future) else one for one in arguments]
        try:
            pickle.dump((method, values), self.process.stdin, PROTOCOL)
            self.process.stdin.flush()
            error, result = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as broken:
            self.process.kill()
            raise WorkerLost(f"a worker process {ending(self.process.wait())}") from broken
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Once the process is killed."""
        assert self.process.stdin and self.process.stdout
        self._bringer.shutdown(cancel_futures=True)
        self.process.wait()
        self.process.stdout.close()
        with suppress(BrokenPipeError):  # of what it did not read any more
            self.process.stdin.close()
