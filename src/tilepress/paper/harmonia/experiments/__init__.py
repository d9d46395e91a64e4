"""Harmonia's items: studies on a model (sections II, III and V-B), and hardware (sections IV and V)."""

from .caches import CACHES
from .distributions import DISTRIBUTIONS
from .energy import ENERGY
from .hardware import HARDWARE
from .longbench import LONGBENCH
from .mantissas import MANTISSAS
from .tables import TABLES

ITEMS = (*MANTISSAS, *DISTRIBUTIONS, *CACHES, *TABLES, *LONGBENCH, *HARDWARE, *ENERGY)
