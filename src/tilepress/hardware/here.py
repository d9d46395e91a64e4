"""The machine at hand, from what was measured on it and what its processor's features say of its cores."""

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .._extras import need_lab
from .machine import Machine, MachineError
from .reading import read_machine

_CPUS = Path("/sys/devices/system/cpu")
_STEPS = 2_000_000
_LIKE = "spr-hbm"  # the machine whose caches are assumed
_SHARED = 0.75  # of the rate alone: threads that share a core have about half, others nearly all
_CYCLES_A_STEP = 2  # an addition and an exclusive or, each waiting for the one before


def machine_here(
    title: str, features: Collection[str], bandwidth: float, threads: int, frequency: float, shared: bool = False
) -> Machine:
    """`bandwidth` in bytes a second and `frequency` in hertz as measured; `threads` that share the cores. `shared`: two
    threads have the units of one core, though the system may call each a core."""
    core = known_core(features)
    if core is None:
        raise MachineError("nothing is known of this processor's vector units; describe it in a YAML file")
    cores = min(physical_cores() or threads, -(-threads // 2) if shared else threads)
    known = {key: value for key, value in core.items() if key not in ("feature", "source")}
    sources = dict.fromkeys(known, core["source"])
    known["caches"] = read_machine(_LIKE).caches
    topology = "measured: threads share cores" if shared else "Linux' topology"
    sources |= {"cores": topology, "frequency": "measured", "memory": f"measured, {threads} threads"}
    sources["caches"] = f"assumed: those of {_LIKE}, which only the simulation of DECA looks at"
    measured = {"cores": cores, "frequency": frequency, "memory": {"bandwidth": bandwidth}}
    return Machine.model_validate({"name": "here", "title": title, **measured, **known, "sources": sources})


def known_core(features: Collection[str]) -> dict[str, Any] | None:
    """What cores.yaml says of a core with these `features` of Linux'; None if nothing."""
    return next((one for one in _cores() if one["feature"] in features), None)


def physical_cores() -> int:
    """Cores that this process may run on: two threads of one core count once; 0 where the system does not say."""
    shared = _CPUS.glob("cpu[0-9]*/topology/thread_siblings_list")
    return len({path.read_text() for path in shared})


def measure_frequency(repeats: int = 50) -> float:
    """Cycles a second of one core: the best of `repeats` runs of a chain of operations of one cycle each."""
    chain = _chain()
    chain(1000, 1, 3)
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        chain(_STEPS, 1, 3)
        times.append(time.thread_time() - start)
    return _CYCLES_A_STEP * _STEPS / min(times)


def cores_are_shared(threads: int, repeats: int = 5) -> bool:
    """Whether so many threads at once have less than three quarters of a thread's rate alone each, at additions that
    fill a core. Virtual machines call threads cores that share one."""
    if threads < 2:
        return False
    alone = min(_wide_time(1) for _ in range(repeats))
    together = min(_wide_time(threads) for _ in range(repeats))
    return alone < _SHARED * together


def _wide_time(threads: int) -> float:
    """Seconds until each of so many threads is through."""
    wide = _wide()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(wide, [1] * threads))  # threads are awake, and the loop is compiled
        start = time.perf_counter()
        list(pool.map(wide, [_STEPS] * threads))
        return time.perf_counter() - start


@cache
def _wide() -> Callable[[int], int]:
    need_lab("measuring whether threads share cores")
    from numba import njit

    def wide(steps: int) -> int:
        a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
        for step in range(steps):  # a chain each: as many at once as a core has units
            a, b, c, d = (a + step) ^ 3, (b + step) ^ 5, (c + step) ^ 7, (d + step) ^ 9
            e, f, g, h = (e + step) ^ 11, (f + step) ^ 13, (g + step) ^ 15, (h + step) ^ 17
        return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h

    compiled: Callable[[int], int] = njit(nogil=True)(wide)
    return compiled


@cache
def _chain() -> Callable[[int, int, int], int]:
    need_lab("measuring the frequency of this processor")
    from numba import njit

    def chain(steps: int, value: int, key: int) -> int:
        for _ in range(steps):
            value = (value + key) ^ steps
        return value

    compiled: Callable[[int, int, int], int] = njit(chain)
    return compiled


@cache
def _cores() -> list[dict[str, Any]]:
    cores: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cores.yaml").read_text("utf-8"))
    return cores
