"""Anda's items: studies on a model (sections II, III, V-B), Table II's own arithmetic, hardware (sections IV, V)."""

from .arithmetic import ARITHMETIC
from .hardware import HARDWARE
from .search import SEARCH
from .sensitivity import SENSITIVITY

ITEMS = (*SENSITIVITY, *SEARCH, *ARITHMETIC, *HARDWARE)
