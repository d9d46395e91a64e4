"""The hardware of Anda (HPCA 2025) and of Harmonia: sections IV and V of each."""

from .anda import ANDA
from .harmonia import HARMONIA

ITEMS = (*ANDA, *HARMONIA)

__all__ = ["ITEMS"]
