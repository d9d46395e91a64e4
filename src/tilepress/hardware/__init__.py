"""Machines as typed descriptions: one YAML file each, every constant with its source."""

from .machine import Caches, Machine, MachineError, Matrix, Memory, Vector
from .reading import machine_names, read_machine, write_machine

__all__ = [
    "Caches", "Machine", "MachineError", "Matrix", "Memory", "Vector", "machine_names", "read_machine", "write_machine",
]  # fmt: skip
