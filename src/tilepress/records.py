"""One figure with its unit, where it came from, on which machine and by which command. Reports are made of these."""

import json
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal

Origin = Literal["measured", "model", "simulated", "paper"]
Value = str | int | float | bool | None
State = Literal["matches", "deviates", "not possible here"]


@dataclass(frozen=True)
class Record:
    """`origin`: "measured" on this machine, by a "model", "simulated", or as a "paper" states it."""

    name: str
    value: Value
    unit: str
    origin: Origin
    machine: str
    command: str


@dataclass(frozen=True)
class Reproduction(Record):
    """Our figure for a cell of a paper's `item`, "deca/table2" say, and the `paper`'s own (None where it prints none).

    `deviation`: ours over theirs, less one; in a figure of unit % ours less theirs, in points. `state`: None where
    there is nothing to compare. `note`: why it is not possible here, or what else must be known.
    """

    item: str
    row: str
    column: str
    paper: Value
    deviation: float | None
    state: State | None
    note: str = ""


def to_json(records: Iterable[Record]) -> str:
    """An array of records, one a line. JSON has no infinity and no NaN: such a value is null."""
    lines = ",\n".join("  " + json.dumps(_finite(asdict(record)), ensure_ascii=False) for record in records)
    return f"[\n{lines}\n]" if lines else "[]"


def _finite(record: dict[str, Value]) -> dict[str, Value]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }


def machine() -> str:
    """This machine in words, with the GPU if it was used."""
    cpu = f"{cpu_model()}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}"
    gpu = _used_gpu()
    return f"{cpu}, {gpu}" if gpu else cpu


def _used_gpu() -> str | None:
    """That of a torch which somebody else imported and set to work on one."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_initialized() else None


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """The processor's name as the system gives it, or the architecture's where it gives none."""
    return _lscpu_field("Model name") or platform.processor() or platform.machine()


def _lscpu_field(field: str) -> str | None:
    # /proc/cpuinfo has only numbers on ARM; lscpu knows the names behind them.
    if shutil.which("lscpu") is None:
        return None
    environment = {**os.environ, "LC_ALL": "C"}
    listing = subprocess.run(["lscpu"], capture_output=True, text=True, env=environment, check=False).stdout
    for line in listing.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == field and value.strip() not in ("", "-"):
            return value.strip()
    return None
