"""Whether others use this machine while it is measured: its load, and readings of its bandwidth that disagree."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_APART = 0.10  # share of the larger reading that the smaller may lack
_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_RUNNING = Path("/proc/loadavg")


@dataclass(frozen=True)
class Load:
    """`average`: threads of all processes that ran or waited to, mean of the last minute or of what was sampled;
    `cpus`: those that this process may use."""

    average: float
    cpus: float

    @property
    def is_high(self) -> bool:
        return self.average > self.cpus


@dataclass(frozen=True)
class Idleness:
    """`load` before the measurement, and `readings` of the bandwidth in bytes a second, one after the other."""

    load: Load
    readings: tuple[float, float]

    @property
    def apart(self) -> float:
        """Share of the larger reading that the smaller lacks."""
        return 1 - min(self.readings) / max(self.readings)

    @property
    def text(self) -> str:
        first, second = (f"{one / 1e9:.1f}" for one in self.readings)
        return f"read bandwidth {first} GB/s and then {second}, load average {self.load.average:.1f}"

    @property
    def reasons(self) -> list[str]:
        """Why the machine counts as busy; none if it does not."""
        apart = f"its read bandwidth changed by {100 * self.apart:.0f} %, more than {100 * MOST_APART:.0f} %"
        loaded = f"its load is above its {self.load.cpus:g} CPUs"
        return [*([apart] if self.apart > MOST_APART else []), *([loaded] if self.load.is_high else [])]


def load_now() -> Load:
    return Load(os.getloadavg()[0], available_cpus())


def load_of_others(samples: int = 20, pause: float = 0.05) -> Load:
    """As `load_now`, but of this second, in which this process sleeps: what it computed just before is not in it."""
    if not _RUNNING.is_file():
        return load_now()
    running = 0
    for _ in range(samples):
        time.sleep(pause)
        running += int(_RUNNING.read_text().split()[3].partition("/")[0]) - 1  # this one runs to read it
    return Load(running / samples, available_cpus())


def available_cpus(groups: Path = _GROUPS, own_group: Path = _OWN_GROUP) -> float:
    """CPUs that this process may run on, and no more than its control groups give it the time of."""
    pinned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(pinned), *_quotas(groups, own_group)])


def _quotas(groups: Path, own_group: Path) -> Iterator[float]:
    """CPUs by each control group that this process is in: version 2's `cpu.max`, version 1's quota and period."""
    for folder in _group_folders(groups, own_group):
        files = [folder / "cpu.max"], [folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"]
        for paths in files:
            if all(path.is_file() for path in paths):
                quota, period = " ".join(path.read_text() for path in paths).split()
                if quota not in ("max", "-1"):
                    yield int(quota) / int(period)


def _group_folders(groups: Path, own_group: Path) -> Iterator[Path]:
    """Of the groups that this process is in, and of those around them. A container sees its own as the outermost."""
    for line in own_group.read_text().splitlines() if own_group.is_file() else []:
        _, controllers, name = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            root = groups / controllers if controllers else groups
            inner = root / name.lstrip("/")
            yield from (folder for folder in [inner, *inner.parents] if folder.is_relative_to(root))
