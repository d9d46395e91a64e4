"""Where threads run: one on every CPU, or one on one CPU of each matrix unit, where two CPUs share one.

`tilepress doctor --tune` measures both and stores the result beside the row limits, for the processor, instruction set,
CPUs and version. Nothing here moves threads by itself: `tilepress generate` asks for it, a program of the user's is
left as it is.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .. import _native
from .._bounded import MB, read_bounded_text
from .._files import write_text
from ..records import cpu_model
from .tuning import REMOVAL, VARIABLE, tuning_folder

BETTER, AS_GOOD = 1.05, 0.98  # speedups that are worth a change, and that are no loss
# By one of these in the environment a user chooses threads, or where they run.
CHOICES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
)


@dataclass(frozen=True)
class Placement:
    """`cpus`: one of each matrix unit. `many_rows`, `few_rows`: how many times as fast linear layers of many rows (a
    prompt) and of few (decoding) are with a thread on each of these as with one on every CPU."""

    cpus: Sequence[int]
    many_rows: float
    few_rows: float

    @property
    def is_better(self) -> bool:
        """For one of them, and no loss for the other: a process has both."""
        return max(self.many_rows, self.few_rows) >= BETTER and min(self.many_rows, self.few_rows) >= AS_GOOD


def own_cpus() -> list[int]:
    """CPUs that this thread may run on; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextmanager
def threads_on(cpus: Sequence[int]) -> Iterator[None]:
    """All threads of this process on `cpus`, those of torch too; at the end each where it was."""
    before = {}
    for thread in _threads():
        with suppress(ProcessLookupError):  # it has ended since
            before[thread] = os.sched_getaffinity(thread)
    own = os.sched_getaffinity(0)
    _move(dict.fromkeys(before, cpus))
    try:
        yield
    finally:
        _move({thread: before.get(thread, own) for thread in _threads()})


def use_stored() -> bool:
    """Move this process' threads as the stored placement has it, and give torch as many; whether that was done. Not
    where it is worth nothing, nor where the user has chosen threads."""
    placement = stored()
    if placement is None or not placement.is_better or any(name in os.environ for name in CHOICES):
        return False
    if torch.get_num_threads() != len(own_cpus()):  # not a thread on every CPU, as `placement` was compared with
        return False
    _move(dict.fromkeys(_threads(), placement.cpus))
    torch.set_num_threads(len(placement.cpus))
    return True


def save(placement: Placement) -> Path:
    path = placement_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    speedups = {"many_rows": placement.many_rows, "few_rows": placement.few_rows}
    write_text(path, json.dumps(_key() | {"one_per_unit": list(placement.cpus)} | speedups, indent=1) + "\n")
    return path


def stored() -> Placement | None:
    """What was measured with the CPUs that this process may use. A file that is damaged is ignored, with a warning."""
    path = placement_file()
    if os.environ.get(VARIABLE) == "off" or not path.exists():
        return None
    try:
        return _read(path)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"{path} is ignored, threads run on every CPU ({reason}); remove it by: {REMOVAL}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None


def placement_file() -> Path:
    """Where the placement of this machine is stored, whether or not it is."""
    digest = hashlib.sha256(json.dumps(_key()).encode()).hexdigest()
    return tuning_folder() / f"placement-{digest[:12]}.json"


def _key() -> dict[str, Any]:
    isa = _native.active_isa()
    return {"cpu": cpu_model(), "isa": isa, "cpus": own_cpus(), "version": version("tilepress")}


def _read(path: Path) -> Placement:
    table, key = json.loads(read_bounded_text(path, MB)), _key()
    if not isinstance(table, dict) or table.keys() != {*key, "one_per_unit", "many_rows", "few_rows"}:
        raise ValueError("it is no placement of threads")
    if any(table[name] != value for name, value in key.items()):
        raise ValueError("it is of another machine or version")
    cpus = table["one_per_unit"]
    if not isinstance(cpus, list) or not cpus or any(type(cpu) is not int for cpu in cpus):
        raise ValueError(f"{str(cpus)[:80]} is no list of CPUs")
    if len(set(cpus)) < len(cpus) or not set(cpus) <= set(key["cpus"]):
        raise ValueError(f"{str(cpus)[:80]} are not CPUs of this process")
    return Placement(cpus, _speedup(table["many_rows"]), _speedup(table["few_rows"]))


def _speedup(value: object) -> float:
    if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{str(value)[:80]} is no speedup")
    return value


def _threads() -> list[int]:
    """Linux' ids of the threads of this process; without Linux, the calling one."""
    folder = Path("/proc/self/task")
    return [int(entry.name) for entry in folder.iterdir()] if folder.is_dir() else [0]


def _move(places: Mapping[int, Iterable[int]]) -> None:
    """Each thread to its CPUs, unless it has ended."""
    for thread, cpus in places.items():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cpus)
