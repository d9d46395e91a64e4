"""DECA: a near-core decompression accelerator, and the Roof-Surface model (MICRO 2025)."""

from .item import Item

ITEMS: tuple[Item, ...] = ()
