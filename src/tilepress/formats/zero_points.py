"""Zero points of unsigned integers: a byte that covers the range of the codes.

Beside codes of Q bits a byte stands for byte · 2^(Q-8): a whole number for uint8, sixteenths for uint4. So code - zero,
counted in those steps, has eight bits and a sign. A zero point that is a code, as in files of GPTQ and AWQ, is stored
as that code times 2^(8-Q).

A sparse matrix has whole zero points only: a dropped weight is exactly zero, and in arithmetic has the code of its
group's zero point.
"""

import torch
from torch import Tensor

from .element import Element
from .weight import ZERO_POINT_BITS as ZERO_POINT_BITS

LARGEST = (1 << ZERO_POINT_BITS) - 1


def zero_steps(element: Element) -> int:
    """Steps of a zero point from one code to the next."""
    return 1 << (ZERO_POINT_BITS - element.bits)


def zero_values(zeros: Tensor, element: Element) -> Tensor:
    """float32 values of stored zero points."""
    return zeros.to(torch.float32) / zero_steps(element)


def zeros_of(places: Tensor, element: Element, *, sparse: bool = False) -> Tensor:
    """Stored zero points, uint8, of groups where zero lies at `places` (float32, not negative) between the codes."""
    steps = zero_steps(element)
    if sparse:
        return (places.clamp(max=element.max).round() * steps).to(torch.uint8)
    return (places * steps).clamp(max=LARGEST).round().to(torch.uint8)


def whole(zeros: Tensor, element: Element) -> bool:
    """Whether all of these stored zero points are codes."""
    return not bool((zeros % zero_steps(element)).any())
