"""Ranks other than the first: `python -m tilepress.engine.ranks.worker MEMORY SOCKET…`, numbers of open files.

What is imported once serves them all: each rank is forked from here, before any other thread has been started.
"""

import gc
import math
import mmap
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from ... import _native
from ..native import NativeModel
from .messages import Setup, receive, runner_of, send


def main(memory: int, sockets: list[int]) -> None:
    """Forks a rank for each socket, and waits for them."""
    gc.freeze()
    for number, socket in enumerate(sockets, 1):
        if os.fork() == 0:
            for other in sockets:
                if other != socket:
                    os.close(other)
            os._exit(_rank(memory, socket, number, len(sockets) + 1))
    for socket in sockets:
        os.close(socket)
    for _ in sockets:
        os.wait()


def _rank(memory: int, socket: int, number: int, ranks: int) -> int:
    """Ends with the first rank. Signals are for that one: it finishes what is in progress."""
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    peers = [socket, *[-1] * (ranks - 1)]
    exchange = _native.Exchange(np.frombuffer(mmap.mmap(memory, 0), np.uint8), number, peers, math.inf)
    connection = Connection(socket)
    try:
        runner = _runner(connection, exchange)
        send(connection, "ready")
        _serve(runner, connection)
    except (EOFError, ConnectionError):
        return 0
    except BaseException:
        exchange.fail()
        traceback.print_exc()
        return 1
    return 0


def _runner(connection: Connection, exchange: Any) -> NativeModel:
    setup: Setup = receive(connection)
    if setup.cpus is not None:
        os.sched_setaffinity(0, setup.cpus)  # before memory is touched: it comes from this node
    torch.set_num_threads(setup.threads)
    _native.force_isa(setup.isa)
    model = receive(connection)
    for _ in setup.decoder.blocks:
        model.body.layers.append(receive(connection))
    return runner_of(setup, model, exchange)


def _serve(runner: NativeModel, connection: Connection) -> None:
    """Each message is the name of a method, and what it is given."""
    while True:
        method, *given = receive(connection)
        getattr(runner, method)(*given)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(one) for one in sys.argv[2:]])
