"""Equations 1 to 3 of the Roof-Surface: the slowest of any number of domains sets the rate.

A domain has a rate, what it does a second (bytes of memory, vector operations, …), and a kernel a demand, what it asks
of the domain for one operation of the target domain, which is one matrix operation here. So a demand is one over an
arithmetic intensity: AI_XM = 1 / demand of memory, AI_XV = 1 / demand of vector operations. Rates and demands may be
arrays that broadcast against each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEMORY, VECTOR, MATRIX, FRONT_END = "memory", "vector", "matrix", "front end"
Number = float | NDArray[np.float64]


@dataclass(frozen=True)
class Bound:
    """`limits`: domain → target operations a second that it allows."""

    limits: Mapping[str, float]

    @property
    def binding(self) -> str:
        return min(self.limits, key=lambda domain: self.limits[domain])

    @property
    def rate(self) -> float:
        """Target operations a second."""
        return self.limits[self.binding]

    @property
    def runner_up(self) -> str | None:
        """The domain that would bind were it not for the one that does."""
        rest = [domain for domain in self.limits if domain != self.binding]
        return min(rest, key=lambda domain: self.limits[domain]) if rest else None

    @property
    def headroom(self) -> float:
        """How many times faster the binding domain must be to leave its region; infinite where it is alone."""
        return self.limits[self.runner_up] / self.rate if self.runner_up else float("inf")


def bound(rates: Mapping[str, float], demands: Mapping[str, float]) -> Bound:
    """Equation 3 for one kernel; what asks nothing of a domain is not limited by it."""
    return Bound({domain: float(limit) for domain, limit in limits(rates, demands).items()})


def limits(rates: Mapping[str, Number], demands: Mapping[str, Number]) -> dict[str, Any]:
    """Domain → target operations a second that it allows."""
    missing = sorted(set(demands) - set(rates))
    if missing:
        raise ValueError(f"nothing says how fast the machine is in {', '.join(missing)}")
    with np.errstate(divide="ignore"):
        return {domain: np.divide(rates[domain], demand) for domain, demand in demands.items()}


def bounds(
    rates: Mapping[str, Number], demands: Mapping[str, Number]
) -> tuple[NDArray[np.float64], NDArray[np.intp], list[str]]:
    """Rates of many kernels or machines at once, the index of what binds each, and the domains that it points into."""
    allowed = limits(rates, demands)
    stacked = np.stack(np.broadcast_arrays(*allowed.values()))
    return stacked.min(0), stacked.argmin(0), list(allowed)
