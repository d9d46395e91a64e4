"""The bounding region diagram: the Roof-Surface seen from above.

Over x = AI_XM and y = AI_XV, three lines part the regions: y = (MBW / VOS) · x, x = MOS / MBW and y = MOS / VOS.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .domains import MATRIX, MEMORY, VECTOR


@dataclass(frozen=True)
class Bord:
    """`slope` of the line between memory and vector, `right` where matrix begins in x, `top` where it begins in y."""

    slope: float
    right: float
    top: float

    def region(self, ai_xm: float, ai_xv: float) -> str:
        """Which domain binds a kernel of this signature; on a line, the first of memory, vector, matrix."""
        if ai_xm <= self.right and ai_xv >= self.slope * ai_xm:
            return MEMORY
        return VECTOR if ai_xv <= self.top and ai_xv < self.slope * ai_xm else MATRIX


def bord(rates: Mapping[str, float]) -> Bord:
    """The diagram of a machine with these rates."""
    memory, vector, matrix = rates[MEMORY], rates[VECTOR], rates[MATRIX]
    return Bord(memory / vector, matrix / memory, matrix / vector)
