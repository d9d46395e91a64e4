"""A Ray cluster: the same batches as tasks of Ray, which starts one again on another node where its node dies."""

import os
import socket
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from .._extras import need_ray
from .batch import Batch, ClusterError, Outcome
from .executor import ATTEMPTS, Ended
from .ray_crew import RayCrew, first_line, last_line
from .work import answer

PATIENCE = 10  # seconds that the cluster has to answer
AUTO = "auto"  # the cluster that this machine is a node of


class RayExecutor:
    """`workers` batches at once, each with `threads` CPUs of a node."""

    def __init__(self, ray: Any, workers: int, threads: int) -> None:
        self.workers, self.threads, self._ray = workers, threads, ray

    def run(self, batches: Iterable[Batch]) -> Generator[Ended, None, None]:
        task = self._ray.remote(num_cpus=self.threads, max_retries=ATTEMPTS - 1)(answer)
        waiting, running = iter(batches), dict[Any, Batch]()
        try:
            while True:
                for batch in islice(waiting, self.workers - len(running)):
                    running[task.remote(batch.call)] = batch
                if not running:
                    return
                for one in self._ready(list(running)):
                    batch = running.pop(one)
                    yield batch, self._outcomes(batch, one)
        finally:
            for one in running:
                self._ray.cancel(one, force=True)

    def _ready(self, running: Sequence[Any]) -> Sequence[Any]:
        """Those that have ended, one at least; ClusterError where no node is left that they could run on."""
        ready: Sequence[Any] = []
        while not ready:
            ready, _ = self._ray.wait(running, num_returns=1, timeout=PATIENCE)
            if not ready and not _room(self._ray, self.threads):
                raise ClusterError(f"no node with {self.threads} CPUs is left in the Ray cluster: add one and go on")
        return ready

    def crew(self, most: int) -> RayCrew:
        """Actors that keep an object, `most` of them at most, on the nodes that there are now."""
        room = max(_room(self._ray, self.threads), 1)
        return RayCrew(self._ray, min(self.workers, most, room), self.threads)

    def _outcomes(self, batch: Batch, reference: Any) -> list[Outcome]:
        errors = self._ray.exceptions
        try:
            return batch.outcomes(self._ray.get(reference))
        except (errors.RayTaskError, errors.RaySystemError) as error:  # `answer` itself never fails
            raise ClusterError(f"tilepress does not run on a node of the cluster: {last_line(error)}") from error
        except errors.RayError as error:
            return batch.lost(f"its worker or its node died, {ATTEMPTS} times: {first_line(error)}")


@contextmanager
def ray_executor(address: str, workers: int | None = None, threads: int = 1) -> Iterator[RayExecutor]:
    """On the cluster at `address`, host:port, ray://host:port or auto; as many workers as it has room for if not
    given."""
    need_ray("work on a Ray cluster")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of what nobody waits for any more, after a death
    import ray

    connect(ray, address)
    try:
        room = _room(ray, threads)
        if not room:
            raise ClusterError(f"no node of the Ray cluster at {address} has {threads} CPUs: ask for fewer threads")
        yield RayExecutor(ray, workers or room, threads)
    finally:
        ray.shutdown()


def _room(ray: Any, threads: int) -> int:
    """Workers of so many threads that the nodes of the cluster have CPUs for."""
    return sum(int(node["Resources"].get("CPU", 0)) // threads for node in ray.nodes() if node["Alive"])


def connect(ray: Any, address: str) -> None:
    """ClusterError, in one sentence, if no cluster is there."""
    try:
        if address != AUTO:
            _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({first_line(error)}): start one with `ray start --head`, or give "
            "its address"
        ) from error


def unknown_ray(error: Exception) -> str:
    """Of something that only some versions of Ray have."""
    return f"tilepress does not know this version of Ray ({first_line(error)}): pip install 'ray[serve]==2.60.0'"


def _knock(address: str) -> None:
    """Ray itself waits long for what is not there, and then ends the process."""
    host, is_address, port = address.removeprefix("ray://").rpartition(":")
    if not is_address or not port.isdecimal():
        raise ValueError("an address is auto, host:port or ray://host:port")
    socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
