"""Accelerators that Harmonia is compared with."""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...studies.arrays import accelerator

if TYPE_CHECKING:
    from ....hardware import Accelerator


class Rival(NamedTuple):
    """An accelerator in Harmonia's technology and area, and the mantissas that it computes with."""

    name: str
    machine: "Accelerator"
    mantissa: int


@lru_cache(maxsize=1)
def rivals() -> tuple[Rival, ...]:
    """Section V-D: in its technology, with an array of the same area and the same memories."""
    from ....simulate.arrays.costs import ARRAY, area, fitted_to_area, in_technology

    ours = accelerator("harmonia")
    room = area(ours)[ARRAY]
    sized_rivals = []
    for name, mantissa in _RIVALS:
        moved = in_technology(accelerator(name), ours.node, ours.voltage, ours.frequency)
        sized = fitted_to_area(moved, room).changed(buffers=ours.buffers.model_dump())
        sized_rivals.append(Rival(name if name != "anda" else f"anda-m{mantissa}", sized, mantissa))
    return tuple(sized_rivals)


_RIVALS = (("fp16-fp16", 8), ("fp16-int4", 8), ("figna", 8), ("figna-c", 8), ("anda", 8), ("anda", 6), ("anda", 4))
