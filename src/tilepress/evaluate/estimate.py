"""A mean and how far it may be off."""

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error: NaN where one value alone gives none.

    The values count as independent. Neighbouring tokens are not quite, so the error of a text's figures is a lower
    bound.
    """

    value: float
    error: float

    @classmethod
    def of(cls, values: Tensor) -> "Estimate":
        """Mean of `values` [count], summed in float64."""
        values = values.double()
        error = (values.var() / len(values)).sqrt().item() if len(values) > 1 else math.nan
        return cls(values.mean().item(), error)

    @classmethod
    def of_share(cls, hits: int, count: int) -> "Estimate":
        """Share of `count` yes-or-no answers. The error is half of Wilson's interval at one standard deviation, which
        is not 0 where all answers are the same."""
        share = hits / count
        return cls(share, math.sqrt(share * (1 - share) / count + 1 / (4 * count**2)) / (1 + 1 / count))

    def exp(self) -> "Estimate":
        """Of the exponential of what this estimates, to first order."""
        value = math.exp(self.value) if self.value < 709 else math.inf
        return Estimate(value, value * self.error)

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.error:.4f}"
