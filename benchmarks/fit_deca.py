"""How the constants of DECA's simulation were fitted: each alone, over values around the one in use.

    python benchmarks/fit_deca.py [PARAMETER…]

Prints, for every value, the root mean square of the deviations of tables 4 (points) and 5 (per cent: performance of
itself, misses and prefetches of all 90 million), or of table 1 (points) for what a token takes beside its GeMMs. No
other table is looked at. Takes a few minutes.
"""

import sys
from dataclasses import replace
from math import sqrt

from tilepress.paper import find, run
from tilepress.paper.deca.experiments.schemes import speed
from tilepress.paper.deca.experiments.tables import MISSES
from tilepress.simulate.deca import FITTED
from tilepress.simulate.deca.parameters import TABLE_1

WEIGHTS = 56 * 512 * 1000
VALUES = {
    "memory_latency": (51.2, 54.2, 57.2, 60.2, 63.2),
    "page_walk": (0, 30, 40, 50, 60, 70),
    "memory_share": (0.92, 0.93, 0.94, 0.95, 0.96),
    "one_way": (1, 2, 3, 4, 5),
    "tile_switch": (0, 1, 2, 3),
    "software_memory_share": (0.72, 0.74, 0.76, 0.78, 0.80),
    "software_vector_share": (0.87, 0.89, 0.91, 0.93, 0.95),
    "l2_prefetch_lines": (4, 8, 12, 16),
    "other_layer_time": (0.216e-3, 0.226e-3, 0.236e-3, 0.246e-3, 0.256e-3),
    "other_sequence_time": (0.0, 0.7e-6, 1.4e-6, 2.1e-6, 2.8e-6),
    "attention_rate": (600e9, 670e9, 730e9, 800e9, 900e9),
}


def error(*items: str) -> float:
    """Root mean square of the deviations of these items, in points and per cent."""
    speed.cache_clear()
    squares = []
    for item in find(items):
        for record in run(item, lambda sequence, _: sequence, {"weights": WEIGHTS}, ""):
            if record.unit == "%" and record.deviation is not None:
                squares.append(record.deviation**2)
            elif record.column == "performance" and record.deviation is not None:
                squares.append((100 * record.deviation) ** 2)
            elif record.unit == "million":
                squares.append((100 * (record.value - record.paper) / MISSES) ** 2)
    return sqrt(sum(squares) / len(squares))


def main(names: list[str]) -> None:
    unknown = set(names) - set(VALUES)
    if unknown:
        sys.exit(f"not fitted here: {', '.join(sorted(unknown))}; there are {', '.join(VALUES)}")
    for name in names or VALUES:
        constant = FITTED[name]
        items = ["deca/table1"] if TABLE_1 in constant.cells else ["deca/table4", "deca/table5"]
        for value in VALUES[name]:
            FITTED[name] = replace(constant, value=value)
            mark = "  <- in use" if value == constant.value else ""
            print(f"{name:24} {value:>12g}  {error(*items):6.2f}{mark}", flush=True)
        FITTED[name] = constant


if __name__ == "__main__":
    main(sys.argv[1:])
