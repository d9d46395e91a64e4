"""Options of commands that can share their work among workers, and the executor that they choose."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Annotated

import typer

from .output import MOST_THREADS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..cluster import InProcess, LocalExecutor, RayExecutor

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that share the work; one if not given, and on Ray as many as have room."),
]
WorkerThreads = Annotated[
    int | None, typer.Option(min=1, max=MOST_THREADS, help="Of each worker; its share of CPUs, and on Ray 1.")
]
RayAddress = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: host:port, ray://host:port or auto.")
]


def chosen_executor(
    workers: int | None, threads: int | None, ray: str | None, usual: int = 1
) -> "AbstractContextManager[InProcess | LocalExecutor | RayExecutor]":
    """`usual`: workers on this machine where none are asked for."""
    from ..cluster import local_executor, ray_executor

    if ray:
        return _quietly(ray_executor(ray, workers, threads or 1))
    return nullcontext(local_executor(workers or usual, threads))


@contextmanager
def _quietly(ray: "AbstractContextManager[RayExecutor]") -> Iterator["RayExecutor"]:
    """Nothing goes to standard output meanwhile: Ray prints there, beside a command's own JSON, when a node dies."""
    with redirect_stdout(StringIO()), ray as executor:
        yield executor
