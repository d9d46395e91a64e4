"""The processes of a group of ranks, as rank 0 has them: memory that all share, and a socket to each of the others."""

import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ... import _native
from ...kernels.placement import threads_on
from .messages import receive, send

PATIENCE = 5.0  # seconds for processes to end by themselves
SILENCE = 120.0  # seconds that rank 0 waits for another in a step; then that one hangs


class Processes:
    """Starts the ranks from 1 on, which then wait to be told what they are."""

    def __init__(self, ranks: int) -> None:
        self._places = ExitStack()
        memory = _shared_memory(_native.Exchange.bytes(ranks))
        pairs = [socket.socketpair() for _ in range(1, ranks)]
        self._connections = [Connection(own.detach()) for own, _ in pairs]
        theirs = [other.detach() for _, other in pairs]
        try:
            self._process = _start(memory, theirs)
            mapped = np.frombuffer(mmap.mmap(memory, 0), np.uint8)
        finally:
            for file in (memory, *theirs):
                os.close(file)
        self.exchange = _native.Exchange(mapped, 0, [-1, *(one.fileno() for one in self._connections)], SILENCE)

    def move(self, cpus: Sequence[int]) -> None:
        """This process' threads to these CPUs, until `close`."""
        self._places.enter_context(threads_on(cpus))

    def tell(self, rank: int, message: Any) -> None:
        """RuntimeError if the rank has ended."""
        try:
            send(self._connections[rank - 1], message)
        except OSError:
            raise RuntimeError(f"the process of rank {rank} has ended") from None

    def tell_all(self, *message: Any) -> None:
        for rank in range(1, len(self._connections) + 1):
            self.tell(rank, message)

    def wait_until_ready(self) -> None:
        """RuntimeError if a rank ended before."""
        for rank, connection in enumerate(self._connections, 1):
            try:
                receive(connection)
            except (EOFError, OSError):
                raise RuntimeError(f"the process of rank {rank} has ended before it was ready") from None

    def close(self) -> None:
        """The others see that their sockets have ended, and end."""
        for connection in self._connections:
            with suppress(OSError):
                connection.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._places.close()


def _shared_memory(size: int) -> int:
    """An open file without a name, of zeros."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("tilepress-ranks")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, size)
    return file


def _start(memory: int, sockets: Sequence[int]) -> "subprocess.Popen[bytes]":
    """In a session of its own: an interrupt at the terminal is for rank 0."""
    files = [memory, *sockets]
    command = [sys.executable, "-P", "-m", f"{__package__}.worker", *map(str, files)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=files, start_new_session=True)
