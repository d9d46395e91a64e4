"""Models on arrays of units: what the studies of Anda's and Harmonia's hardware are made of."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...hardware import Accelerator
    from ...simulate.arrays import Result
    from ...simulate.arrays.workload import Scope

SEQUENCE = 2048  # the longest that most models of either paper take


@dataclass(frozen=True)
class StudyMapping:
    """A study's mapping of products to arrays, and what rows of its results end in: the papers' own have no ending."""

    ending: str
    is_pinned: bool


PINNED, BEST = StudyMapping("", True), StudyMapping(", best mapping", False)
MAPPINGS = (PINNED, BEST)
MAPPINGS_NOTE = (
    "Rows with “best mapping”: each machine with the tiles and the order that take least energy times delay. All "
    "others: as pinned in its description, the papers' dataflow."
)


def run(
    machine: "Accelerator",
    model: str,
    activations: str,
    scope: "Scope" = "linear",
    tokens: int = SEQUENCE,
    mapping: StudyMapping = PINNED,
) -> "Result":
    """A prompt, products alone."""
    from ...simulate import arrays
    from ...simulate.layers import find_transformer

    task = arrays.Task(find_transformer(model), "prefill", tokens, 1, activations, scope=scope, products_only=True)
    return arrays.simulate(machine, task, arrays.PINNED if mapping.is_pinned else arrays.BEST)


def accelerator(name: str) -> "Accelerator":
    """The one called `name`, whose pinned tile is the fitted one; imported here, since listing items needs none."""
    from ...hardware import read_accelerator
    from ...simulate.arrays.parameters import fitted

    tile = round(fitted("tile"))
    return read_accelerator(name).changed(tile={"rows": tile, "columns": tile})
