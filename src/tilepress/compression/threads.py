"""Parallel work whose result does not depend on the number of threads.

BLAS, LAPACK and torch divide a sum, or choose between vector and scalar code, by how many threads they have, so the
same product has other last bits with two threads than with one, and a weight that lies between two codes tips over.
Here every torch operation has one thread, and the parallelism is ours: work is cut in pieces whose sizes depend on the
shapes alone, and the pieces are computed side by side and put together in order.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

import torch

PANEL = 256  # rows of a product that are computed at a time
WIDER = 64  # times as much at a time where the device is parallel itself

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.RLock()  # torch has one number of threads for the whole process: one user of it at a time
_pinned: list[int] = []  # what torch had before the `one_thread` contexts that are open, the outermost first
_worker = threading.local()  # has `busy` in threads of a pool, which have one thread already


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread meanwhile; `in_order` still uses as many as it had before."""
    if getattr(_worker, "busy", False):
        yield
        return
    with _lock:
        _pinned.append(torch.get_num_threads())
        if len(_pinned) == 1:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            before = _pinned.pop()
            if not _pinned:
                torch.set_num_threads(before)


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map`, several items at a time, each with one thread of torch's, and grad mode as it is here.

    Items are taken in this thread, no more than are computed at once, so that few results wait in memory.
    """
    with one_thread():
        threads, rest = 1 if getattr(_worker, "busy", False) else _pinned[0], iter(items)
        first = [] if threads == 1 else list(islice(rest, 2))
        if len(first) < 2:  # a single item is not worth a pool
            yield from map(function, chain(first, rest))
            return
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        def compute(item: Item) -> Result:
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                return function(item)

        with ThreadPoolExecutor(threads, initializer=_begin_worker) as pool:
            waiting: deque[Future[Result]] = deque()
            for item in chain(first, rest):
                waiting.append(pool.submit(compute, item))
                if len(waiting) == threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


@contextmanager
def one_by_one() -> Iterator[None]:
    """`in_order` computes one item after another meanwhile, here: for a device that is parallel itself."""
    before = getattr(_worker, "busy", False)
    _worker.busy = True
    try:
        yield
    finally:
        _worker.busy = before


def run_all(function: Callable[[Item], object], items: Iterable[Item]) -> None:
    """`in_order` for what `function` does, not for what it gives."""
    deque(in_order(function, items), maxlen=0)


def at_a_time(size: int, device: torch.device) -> int:
    """How much is computed at a time on the device, where it is `size` on a CPU."""
    return size if device.type == "cpu" else WIDER * size


def panels(rows: int, size: int = PANEL) -> list[slice]:
    """Rows that are computed at a time."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _begin_worker() -> None:
    _worker.busy = True
    torch.set_num_threads(1)  # OpenMP counts for each thread that starts work
