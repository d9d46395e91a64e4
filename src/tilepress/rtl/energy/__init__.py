"""What an operation of a unit takes: its cells, simulated with real data, and the toggles of their outputs."""

from .operands import RANDOM, Operands, random_operands
from .operation import Conditions, Energy, Measured, measure

__all__ = ["RANDOM", "Conditions", "Energy", "Measured", "Operands", "measure", "random_operands"]
