"""How the constants of the arrays' simulation were fitted: each alone, over values around the one in use.

    python benchmarks/fit_arrays.py [PARAMETER…]

Prints, for every value, the root mean square of the deviations, in per cent or points, of the cells that the constant
was fitted to. No other cell is looked at. Takes a minute.
"""

import sys
from dataclasses import replace
from math import sqrt

from tilepress.hardware import reading
from tilepress.paper import find, run
from tilepress.paper.harmonia.experiments.rivals import rivals
from tilepress.simulate.arrays import FITTED

# Parameter → values; the cells are those that it declares.
VALUES = {
    "sram_density": (0.7, 0.75, 0.79, 0.85, 0.9),
    "sram_bank": (8192, 16384, 32768, 65536),
    "tile": (16, 32, 64, 128, 256),
    "auxiliary_share": (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5),
}


def error(name: str) -> float:
    """Root mean square of the deviations of a constant's cells."""
    rivals.cache_clear()
    squares, cells = [], FITTED[name].cells
    for item in dict.fromkeys(one.item for one in cells):
        for record in run(*find([item]), lambda sequence, _: sequence, {}, ""):
            is_fitted = any(one.include(item, record.row, record.column) for one in cells)
            if is_fitted and record.deviation is not None:
                squares.append((record.deviation * (1 if record.unit == "%" else 100)) ** 2)
    return sqrt(sum(squares) / len(squares))


def with_tile(size: float) -> None:
    """Tiles are in the machines' descriptions: every one that is read from now on has this one."""
    plain = reading._whole

    def changed(*arguments):
        return {**plain(*arguments), "tile": {"rows": int(size), "columns": int(size)}}

    reading._whole = changed


def main(names: list[str]) -> None:
    if unknown := set(names) - set(VALUES):
        sys.exit(f"not fitted here: {', '.join(sorted(unknown))}; there are {', '.join(VALUES)}")
    for name in names or VALUES:
        constant, whole = FITTED[name], reading._whole
        for value in VALUES[name]:
            FITTED[name] = replace(constant, value=value)
            if name == "tile":
                with_tile(value)
            mark = "  <- in use" if value == constant.value else ""
            print(f"{name:16} {value:>10g}  {error(name):6.2f}{mark}", flush=True)
            reading._whole = whole
        FITTED[name] = constant


if __name__ == "__main__":
    main(sys.argv[1:])
