"""DECA's processing element: loaders, three stages and output registers, a file each; `pe` joins them."""

from .parameters import Control, Parameters, control_of
from .pe import Pe

__all__ = ["Control", "Parameters", "Pe", "control_of"]
