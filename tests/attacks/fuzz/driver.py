"""Runs cases of one target in forked processes, and writes down what they do wrong.

A worker runs a batch of cases. Where it is, and what it counts, lies in memory that the driver shares, and the files of
the case at hand lie in a folder of the driver's: a worker that dies leaves both behind, and the next one goes on after
that case. Each case has a Random of its own, so it can be run again alone.
"""

import ctypes
import faulthandler
import hashlib
import importlib
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from .reader import TARGETS, Case, Files, Reader, Target

FOUND = Path(__file__).parents[3] / "build" / "fuzz"
MOST_DEATHS = 20  # of workers, for one target: after that the rest of its cases is left out
MOST_KEPT = 10  # cases of one kind that are written down
ADDRESS_SPACE = 2 << 30  # beyond what the worker has: larger allocations fail
# Beyond twice the size of the files read; the address sanitizer keeps what was freed.
SPARE_MEMORY = 1 << 30 if os.environ.get("TILEPRESS_SANITIZED") else 64 << 20
WALL_CLOCK = 20  # times the CPU time allowed: only what waits for ever takes longer


class Tally(ctypes.Structure):
    """`case`: the one at hand. `errors`: exceptions that are no refusal; `unseen`: damage that was accepted; `bombs`:
    cases that took too much memory. `slowest` in CPU seconds, `largest` in bytes, of one case."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("case", "refused", "accepted", "errors", "unseen", "bombs")),
        *((name, ctypes.c_int64) for name in ("crashes", "hangs", "largest")),
        ("slowest", ctypes.c_double),
    )

    @property
    def findings(self) -> int:
        return int(self.errors + self.unseen + self.bombs + self.crashes + self.hangs)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, _ in self._fields_ if name != "case"}


def fuzz(name: str, cases: int, seed: int, first: int = 0) -> Tally:
    """Run `cases` cases of the target from number `first` on; what is wrong lies under FOUND/name afterwards."""
    target, findings = TARGETS[name], FOUND / name
    make = _reader(target)  # imported here, once, for all workers
    shutil.rmtree(findings, ignore_errors=True)
    findings.mkdir(parents=True)
    tally = Tally.from_buffer(mmap.mmap(-1, ctypes.sizeof(Tally)))  # shared with what is forked
    with _work_folder() as folder:
        at, end = first, first + cases
        while at < end and tally.crashes + tally.hangs < MOST_DEATHS:
            last = min(at + target.batch, end)
            worker = _Worker(name, make, folder, tally, seed)
            status = _in_child(partial(worker.run, at, last), findings / "worker.log")
            at = last if status == 0 else _note_death(name, status, tally, folder, seed)
    return tally


@contextmanager
def _work_folder() -> Iterator[Path]:
    """In memory where the system has such a place: a million small files are written there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        (Path(folder) / "case").mkdir()
        yield Path(folder)


def _in_child(work: Callable[[], None], log: Path) -> int:
    """The exit status, as of waitpid, of a child that does `work` and prints to `log`."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        with open(log, "w") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
            faulthandler.enable(file)
            work()
            sys.stdout.flush()
            os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _note_death(name: str, status: int, tally: Tally, folder: Path, seed: int) -> int:
    """Count a worker's death, keep the case that it died of, and return the number of the next one."""
    log = (FOUND / name / "worker.log").read_text(errors="replace")
    if os.WIFEXITED(status):  # Python got to the end: the fault is the target's own
        raise RuntimeError(f"the fuzz target {name} cannot work:\n{log}")
    number = os.WTERMSIG(status)
    is_hang = number in (signal.SIGPROF, signal.SIGALRM)
    tally.hangs, tally.crashes = tally.hangs + is_hang, tally.crashes + (not is_hang)
    text = f"killed by {signal.Signals(number).name}\n{log[-4000:]}"
    _keep(name, f"{'hang' if is_hang else 'crash'}-{tally.case}", _files(folder / "case"), tally.case, seed, text)
    return int(tally.case) + 1


class _Worker:
    """Runs a batch of cases, in the child."""

    reader: Reader

    def __init__(self, name: str, make: type[Reader], folder: Path, tally: Tally, seed: int) -> None:
        self.name, self.make, self.tally, self.seed = name, make, tally, seed
        self.parent, self.folder, self.seconds = folder, folder / "case", TARGETS[name].seconds

    def run(self, first: int, last: int) -> None:
        warnings.simplefilter("ignore")
        self.reader = self.make(self.parent)
        for files in self.reader.samples:
            _put(self.folder, files)
            self.reader.read(self.folder)
        _limit_memory()
        for number in range(first, last):
            self.tally.case = number
            random = Random(f"{self.seed}/{self.name}/{number}")
            case = self.reader.mutated(random.choice(self.reader.samples), random)
            _put(self.folder, case.files)
            self._read(case)

    def _read(self, case: Case) -> None:
        before, start = _reset_peak_memory(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        signal.setitimer(signal.ITIMER_REAL, self.seconds * WALL_CLOCK)
        error = self._error()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._count(case, error, time.process_time() - start, _peak_memory() - before)

    def _error(self) -> BaseException | None:
        try:
            self.reader.read(self.folder)
        except BaseException as error:  # a panic of Rust's is no Exception
            return error
        return None

    def _count(self, case: Case, error: BaseException | None, seconds: float, memory: int) -> None:
        tally = self.tally
        tally.slowest, tally.largest = max(tally.slowest, seconds), max(tally.largest, memory)
        tally.accepted += error is None
        tally.refused += type(error) in self.reader.refusals
        if error is not None and type(error) not in self.reader.refusals:
            tally.errors += 1
            self._keep("error", case, "".join(traceback.format_exception(error)), _signature(error))
        if error is None and case.is_damage:
            tally.unseen += 1
            self._keep("unseen", case, "damage that has a checksum was accepted", str(tally.case))
        if memory > SPARE_MEMORY + 2 * sum(map(len, case.files.values())):
            tally.bombs += 1
            self._keep("bomb", case, f"took {memory >> 20} MB", str(tally.case))

    def _keep(self, kind: str, case: Case, text: str, signature: str) -> None:
        what = f"{kind}-{hashlib.sha256(signature.encode()).hexdigest()[:8]}"
        _keep(self.name, what, case.files, self.tally.case, self.seed, text)


def _reader(target: Target) -> type[Reader]:
    reader: type[Reader] = importlib.import_module(f"{__package__}.readers.{target.module}").Reader
    return reader


def _signature(error: BaseException) -> str:
    """Errors of one kind from one place count as one finding."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {place.filename} {place.lineno}"


def _keep(name: str, what: str, files: Files, case: int, seed: int, text: str) -> None:
    """The case's files and what went wrong, once."""
    folder = FOUND / name / what
    kind = what.partition("-")[0]
    if folder.exists() or len(list(folder.parent.glob(f"{kind}-*"))) >= MOST_KEPT:
        return
    _put(folder, files)
    again = f"python -m tests.attacks.fuzz {name} --seed {seed} --first {case} --cases 1"
    (folder / "finding.txt").write_text(f"{again}\n\n{text}", errors="replace")


def _put(folder: Path, files: Files) -> None:
    """Make the folder hold exactly these files."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, resource.RLIM_INFINITY))


def _reset_peak_memory() -> int:
    """Let the highest mark of resident memory, in bytes, begin anew; where the system does not let us, it stays."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass
    return _peak_memory()


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
