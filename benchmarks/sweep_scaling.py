"""What handing a task to a worker costs, and how far a sweep scales: 1,000 tasks on 1 to 64 workers.

    python benchmarks/sweep_scaling.py            prints both tables; takes about a minute, and wants a quiet machine
    python benchmarks/sweep_scaling.py --json     records instead

Empty tasks, through processes and through a Ray cluster on this machine, give the overhead of a task. Times of batches
of DECA simulations are measured here, one after the other, and the time until a worker's first answer. From these 1,000
tasks are scheduled on simulated workers: one driver hands them out, each of which takes it the overhead, and a worker
that is free takes the next. Only the workers are simulated.
"""

import argparse
import heapq
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from statistics import median

from tilepress import __version__
from tilepress._extras import need_ray
from tilepress.cluster import Batch, Executor, InProcess, LocalExecutor, RayExecutor
from tilepress.records import Record, machine, to_json
from tilepress.sweep import STUDIES
from tilepress.sweep.studies import RUN

TASKS = 1000
ROUNDS, EMPTY = 9, 100  # rounds of so many empty tasks; the first is not counted
MEASURED = 12  # batches of which the times are drawn
WORKERS = (1, 2, 4, 8, 16, 32, 64)
ENOUGH = 0.8  # share of the ideal speed-up from which on it counts as scaling
CPUS = 2
COMMAND = "python benchmarks/sweep_scaling.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print records")
    arguments = parser.parse_args()
    with ray_here() as on_ray:
        overheads = {"processes": overhead(LocalExecutor(CPUS, 1)), "ray": overhead(on_ray)}
    times, start = batch_times(), first_answer()
    records = list(figures(overheads, times, start))
    print(to_json(records)) if arguments.json else show(records)


@contextmanager
def ray_here() -> Iterator[RayExecutor]:
    """A cluster of this machine alone."""
    need_ray("this measurement")
    import ray

    ray.init("local", num_cpus=CPUS, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    try:
        yield RayExecutor(ray, 8 * CPUS, 1)
    finally:
        ray.shutdown()


def overhead(executor: Executor) -> float:
    """Seconds of an empty task, with workers that run already: the median round."""
    ended = executor.run([Batch(RUN, [], COMMAND) for _ in range(ROUNDS * EMPTY)])
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in islice(ended, EMPTY):
            pass
        rounds.append((time.perf_counter() - start) / EMPTY)
    return median(rounds[1:])


def batch_times() -> list[float]:
    """Seconds of batches of DECA simulations as a sweep makes them."""
    space = product(("mxfp4", "bf8"), (300, 850), (8, 16, 32), (2, 4, 8), (2, 4, 8, 16))
    keys = ("weights", "bandwidth", "width", "tables", "queue")
    points = [{"kind": "simulate deca", "density": 0.2, **dict(zip(keys, one, strict=True))} for one in space]
    size = len(points) // MEASURED
    batches = [Batch(RUN, points[at : at + size], COMMAND) for at in range(0, size * MEASURED, size)]
    times, before = [], 0.0
    ended = InProcess().run([batches[0], *batches])
    next(ended)  # compiles
    before = time.perf_counter()
    for _ in ended:
        times.append((time.perf_counter() - before) * STUDIES["simulate deca"].batch / size)
        before = time.perf_counter()
    return times


def first_answer() -> float:
    """Seconds until a new process has simulated its first, small point."""
    point = {"kind": "simulate deca", "parameters": 28672}
    start = time.perf_counter()
    list(LocalExecutor(1, 1).run([Batch(RUN, [point], COMMAND)]))
    return time.perf_counter() - start


def makespan(times: Sequence[float], workers: int, overhead: float, start: float) -> float:
    """Seconds until the last of `times` is done: a driver hands one out in `overhead`, to whichever worker is free."""
    free, driver = [start] * workers, 0.0
    for seconds in times:
        driver = max(driver, heapq.heappop(free)) + overhead
        heapq.heappush(free, driver + seconds)
    return max(free)


def figures(overheads: dict[str, float], times: Sequence[float], start: float) -> Iterator[Record]:
    yield record("task_time", median(times), "s", "measured")
    yield record("first_answer", start, "s", "measured")
    tasks = random.Random(0).choices(times, k=TASKS)
    for executor, seconds in overheads.items():
        yield record("task_overhead", 1e3 * seconds, "ms", "measured", executor=executor)
        alone = sum(tasks)
        for workers in WORKERS:
            speedup = alone / makespan(tasks, workers, seconds, start)
            yield record("speedup", speedup, "x", "simulated", executor=executor, workers=workers)
            yield record("efficiency", speedup / workers, "", "simulated", executor=executor, workers=workers)
        yield record("scales_to", limit(tasks, seconds, start), "", "simulated", executor=executor)


def limit(tasks: Sequence[float], overhead: float, start: float) -> int:
    """The most workers that still reach ENOUGH of the ideal speed-up."""
    alone, workers = sum(tasks), 1
    while alone / makespan(tasks, 2 * workers, overhead, start) >= ENOUGH * 2 * workers:
        workers *= 2
    while alone / makespan(tasks, workers + 1, overhead, start) >= ENOUGH * (workers + 1):
        workers += 1
    return workers


def record(metric: str, value: float, unit: str, origin: str, **labels: str | int) -> Record:
    return Record(metric, labels, value, unit, origin, machine(), COMMAND, version=__version__)


def show(records: Sequence[Record]) -> None:
    values = {(one.metric, *one.labels.values()): one.value for one in records}
    print(f"a batch of 50 simulations: {values['task_time',]:.2f} s; first answer: {values['first_answer',]:.1f} s")
    for executor in ("processes", "ray"):
        print(f"\n{executor}: {values['task_overhead', executor]:.2f} ms a task; {TASKS} tasks on workers")
        for workers in WORKERS:
            speedup, share = values["speedup", executor, workers], values["efficiency", executor, workers]
            print(f"  {workers:3}  {speedup:6.1f} x  {100 * share:4.0f} %")
        print(f"  {100 * ENOUGH:.0f} % of the ideal until {values['scales_to', executor]} workers")


if __name__ == "__main__":
    main()
