"""What several items run: models on arrays, remembered, and mantissas for savings that Anda prints."""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...compression.search import Mantissas
from ..anda import ROUNDING, combinations_by_saving
from ..anda_published import MODELS, SAVING, products_of

if TYPE_CHECKING:
    from ...hardware import Accelerator
    from ...simulate.arrays import Result
    from ...simulate.arrays.workload import Scope

TOLERANCES = {"0.1 %": "Anda 0.1 %", "1 %": "Anda 1 %"}
SEQUENCE = 2048  # the longest that most models of either paper take


class Rival(NamedTuple):
    """An accelerator in Harmonia's technology and area, and the mantissas that it computes with."""

    name: str
    machine: "Accelerator"
    mantissa: int


@lru_cache(maxsize=64)
def combination(model: str, tolerance: str) -> Mantissas:
    """Mantissas that give the saving of Table II on WikiText2: of those within its rounding one that falls from qkv to
    d, if there is any, and the one whose lengths differ least."""
    printed = SAVING["WikiText2"][TOLERANCES[tolerance]][MODELS.index(model)]
    savings = combinations_by_saving(products_of(model))
    near = [one for saving, alike in savings.items() if abs(saving - printed) < ROUNDING for one in alike]
    if not near:
        near = savings[min(savings, key=lambda saving: abs(saving - printed))]
    falling = [one for one in near if one[0] >= max(one[1:]) and one[3] == min(one)]
    return min(falling or near, key=lambda one: max(one) - min(one))


def run(
    machine: "Accelerator", model: str, activations: str, scope: "Scope" = "linear", tokens: int = SEQUENCE
) -> "Result":
    """A prompt, products alone."""
    from ...simulate.arrays import Task, simulate
    from ...simulate.layers import find_transformer

    task = Task(find_transformer(model), "prefill", tokens, 1, activations, scope=scope, products_only=True)
    return simulate(machine, task)


def named(name: str) -> "Accelerator":
    from ...hardware import read_accelerator

    return read_accelerator(name)


def anda_format(mantissas: Mantissas) -> str:
    return f"anda:{','.join(map(str, mantissas))}"


@lru_cache(maxsize=1)
def rivals() -> tuple[Rival, ...]:
    """Section V-D: in its technology, with an array of the same area and the same memories."""
    from ...simulate.arrays.costs import ARRAY, area, fitted_to_area, in_technology

    ours = named("harmonia")
    room = area(ours)[ARRAY]
    found = []
    for name, mantissa in _RIVALS:
        moved = in_technology(named(name), ours.node, ours.voltage, ours.frequency)
        sized = fitted_to_area(moved, room).changed(buffers=ours.buffers.model_dump())
        found.append(Rival(name if name != "anda" else f"anda-m{mantissa}", sized, mantissa))
    return tuple(found)


_RIVALS = (("fp16-fp16", 8), ("fp16-int4", 8), ("figna", 8), ("figna-c", 8), ("anda", 8), ("anda", 6), ("anda", 4))
