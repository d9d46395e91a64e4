"""Harmonia's items: studies on a model (sections II, III and V-B), and hardware (sections IV and V)."""

from .caches import CACHES
from .hardware import HARDWARE
from .mantissas import MANTISSAS
from .tables import TABLES

ITEMS = (*MANTISSAS, *CACHES, *TABLES, *HARDWARE)
