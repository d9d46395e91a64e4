"""A crew of actors on a Ray cluster: what one of them gives another goes from node to node."""

from typing import Any

from .batch import ClusterError
from .crew import WorkerLost

FIRST = 600  # seconds until the first actor runs; the cluster may be busy
PATIENCE = 60  # seconds until the others do, which a node that has just gone may have been asked for


class RayCrew:
    """Up to `size` actors with `threads` CPUs each: as many as get a place in time."""

    def __init__(self, ray: Any, size: int, threads: int) -> None:
        from .host import Host

        self._ray = ray
        kind = ray.remote(num_cpus=threads, max_restarts=0)(Host)
        actors = [kind.remote(threads) for _ in range(size)]
        placed = {actor: actor.__ray_ready__.remote() for actor in actors}
        if not ray.wait(list(placed.values()), timeout=FIRST)[0]:
            raise ClusterError(f"the Ray cluster has had no {threads} free CPUs for {FIRST} s: end what runs there")
        ready, _ = ray.wait(list(placed.values()), num_returns=size, timeout=PATIENCE)
        self._actors = [actor for actor, one in placed.items() if one in ready]
        for actor in set(actors) - set(self._actors):
            ray.kill(actor)

    @property
    def size(self) -> int:
        return len(self._actors)

    def start(self, worker: int, function: str, *arguments: Any) -> Any:
        from .host import versions

        return self._actors[worker].start.remote(versions(), function, arguments)

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        return self._actors[worker].call.remote(method, *arguments)

    def get(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.RayError):  # of what it was to be given
                raise WorkerLost(f"a worker or its node died: {first_line(error.cause)}") from error
            raise error.cause from None
        except errors.RaySystemError as error:
            raise ClusterError(f"tilepress does not run on a node of the cluster: {last_line(error)}") from error
        except errors.RayError as error:
            raise WorkerLost(f"a worker or its node died: {first_line(error)}") from error

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def last_line(error: BaseException) -> str:
    """Of a traceback that came from a node: the error itself."""
    return str(error).strip().rpartition("\n")[2]
