"""The thread pool: many sizes, many callers, and processes that fork."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from tests.tiles.cases import assert_same_bytes, matrix

from tilepress import tiles

WEIGHT = matrix(300, 100, density=0.5)


def pack(threads):
    return tiles.pack(WEIGHT, "int4:g32", sparse=True, threads=threads)


def test_any_number_of_threads_in_any_order():
    alone = pack(1)
    for threads in [2, 7, 1, 40, 3, 2] * 20:
        assert_same_bytes(pack(threads), alone)


def test_many_callers_at_once():
    alone, wrong = pack(1), []

    def call():
        for _ in range(30):
            if not torch.equal(pack(3).codes, alone.codes):
                wrong.append(1)

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the very thing that is tested
def test_a_forked_process_has_threads_of_its_own():
    alone = pack(2)
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(pack(2).codes, alone.codes) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Packages bring OpenMP runtimes of their own: scikit-learn's comes in with transformers where both are installed.
ANOTHER_RUNTIME = """
import ctypes, shutil, sys
import torch
(runtime,) = {line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}
ctypes.CDLL(shutil.copy(runtime, sys.argv[1]))
from tilepress import _native
assert _native.thread_runtime() == runtime, _native.thread_runtime()
"""


def test_threads_are_those_of_torch(tmp_path):
    subprocess.run([sys.executable, "-c", ANOTHER_RUNTIME, tmp_path / "libgomp-another.so"], check=True)


FEWER = """
import torch
from tilepress import kernels, tiles
weight, x = torch.randn(300, 100), torch.randn(9, 100)
packed = tiles.pack(weight, "int4:g32")
alone = kernels.linear(x, packed, activations="int8", threads=1)
for threads in (2, 3, 8) * 10:
    assert torch.equal(kernels.linear(x, packed, activations="int8", threads=threads), alone), threads
"""


OWN = """
import os, threading
import torch
from tests.kernels.test_parallel import pack, test_any_number_of_threads_in_any_order, test_many_callers_at_once
test_any_number_of_threads_in_any_order()
test_many_callers_at_once()
alone = pack(1)
child = os.fork()
if not child:
    os._exit(0 if torch.equal(pack(2).codes, alone.codes) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_threads_of_our_own_beside_those_of_torch():
    """What serves where other programs keep torch's threads from cores."""
    environment = {**os.environ, "TILEPRESS_THREADS": "own"}
    subprocess.run([sys.executable, "-c", OWN], env=environment, check=True, timeout=300)


def test_fewer_threads_come_than_were_asked_for():
    subprocess.run([sys.executable, "-c", FEWER], env={**os.environ, "OMP_THREAD_LIMIT": "2"}, check=True, timeout=120)
