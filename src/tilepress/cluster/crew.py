"""Workers that keep an object between calls, where a batch keeps nothing: what compression over workers needs."""

from typing import Any, Protocol

from .batch import ClusterError


class WorkerLost(ClusterError):
    """A worker has died, and all that it kept."""


class Crew(Protocol):
    """`size` workers. Each keeps one object, which `start` makes, and answers calls of its methods one by one in the
    order in which they were made. What it computes with never goes by this process where it need not."""

    @property
    def size(self) -> int: ...

    def start(self, worker: int, function: str, *arguments: Any) -> Any:
        """The worker's object becomes what `function`, "module:name", gives. A reference, to wait for."""

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        """A reference to what the method will give; references among the arguments stand for what they lead to."""

    def get(self, reference: Any) -> Any:
        """What a reference leads to, once it is there; the method's own error, or WorkerLost."""

    def close(self) -> None:
        """Ends all workers at once."""
