"""Machines as typed descriptions: one YAML file each, every constant with its source."""

from .accelerator import Accelerator
from .machine import Caches, Dram, Machine, MachineError, Matrix, Memory, Sockets, Vector
from .reading import accelerator_names, machine_names, read_accelerator, read_machine, write_machine

__all__ = [
    "Accelerator", "Caches", "Dram", "Machine", "MachineError", "Matrix", "Memory", "Sockets", "Vector",
    "accelerator_names", "machine_names", "read_accelerator", "read_machine", "write_machine",
]  # fmt: skip
