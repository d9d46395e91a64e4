"""Sizes that several models of this package share."""

UNITS = 4096  # parts of a cycle that the memory's time is counted in
PAGE_LINES = 64  # of 64 bytes in a page of 4 KiB
