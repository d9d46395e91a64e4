"""What the DRAM of DECA's two machines lets 56 cores read, and how much our own choices in its model matter.

    python benchmarks/dram_bandwidth.py

Each core reads pages of 4 KiB that lie anywhere, line after line, or lines at random, with as many misses under way as
its L2 cache has. Takes half a minute.
"""

import numpy as np

from tilepress.hardware import Machine, read_machine
from tilepress.simulate.deca.dram import Timing
from tilepress.simulate.deca.dram_streams import read_streams
from tilepress.simulate.deca.plan import UNITS

CORES, LINES, PAGE = 56, 8192, 64
RANDOM = np.random.default_rng(0).integers(0, 1 << 30, (CORES, LINES))
PAGES = (RANDOM[:, ::PAGE, None] // PAGE * PAGE + np.arange(PAGE)).reshape(CORES, LINES)
DRAM = {
    "interleave of 64 bytes": {"interleave": 64},
    "interleave of 1 KiB": {"interleave": 1024},
    "queue of 16": {"queue": 16},
    "queue of 128": {"queue": 128},
}
REFRESH = {
    "spr-ddr": {"refreshed bank by bank number, 130 ns": {"refresh": "same-bank", "rfc": 130e-9}},
    "spr-hbm": {"all banks refreshed at once, 450 ns": {"refresh": "all-bank", "rfc": 450e-9}},
}


def variants(machine: Machine) -> dict[str, Machine]:
    dram = machine.model_dump(exclude_unset=True)["memory"]["dram"]
    free = {"mesh_bandwidth": None}
    found = {"as described": machine, "no limit of the mesh": machine.changed(memory=free)}
    found["… and 400 misses a core"] = machine.changed(memory=free, caches={"l2_misses": 400})
    for what, change in (DRAM | REFRESH[machine.name]).items():
        found[what] = machine.changed(memory={"dram": dram | change})
    for path in (20e-9, 60e-9, 100e-9):
        found[f"path of {path * 1e9:.0f} ns"] = machine.changed(memory={"path_latency": path})
    return found


def main() -> None:
    for name in ("spr-ddr", "spr-hbm"):
        machine = read_machine(name)
        assert machine.memory.dram is not None
        timing, peak = Timing.of(machine), machine.memory.dram.bandwidth
        assert timing is not None
        idle = timing.idle / UNITS / machine.frequency
        print(f"{name}: peak {peak / 1e9:.0f} GB/s, idle latency {idle * 1e9:.0f} ns")
        for what, variant in variants(machine).items():
            pages, random = read_streams(variant, PAGES), read_streams(variant, RANDOM)
            print(
                f"  {what:40} pages {pages.bandwidth / 1e9:5.0f} GB/s ({pages.bandwidth / peak:.0%}, "
                f"{pages.hits:.0%} row hits), random {random.bandwidth / 1e9:5.0f} ({random.bandwidth / peak:.0%})"
            )


if __name__ == "__main__":
    main()
