"""Constants of simulators that no paper prints."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fitted:
    """`fitted_to`: the cells of a paper that it was set by."""

    value: float
    unit: str
    fitted_to: str
