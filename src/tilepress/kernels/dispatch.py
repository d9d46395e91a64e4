"""Which instruction sets and kernels there are, and which kernel an operation takes.

The highest instruction set that this machine has is in force, unless the environment variable TILEPRESS_ISA names
another; an operation takes the best of its kernels that the set in force permits. Read anew at every call.
"""

from .. import _native


def supported_isas() -> list[str]:
    """Instruction sets that this machine and this build can run, ascending."""
    return _native.supported_isas()


def cpu_features() -> list[str]:
    """Processor features found, by Linux' names for them."""
    return _native.cpu_features()


def active_isa() -> str:
    """The instruction set in force; ValueError if TILEPRESS_ISA names one that cannot be."""
    return _native.active_isa()


def registered() -> dict[str, list[str]]:
    """Operation → the instruction sets it has a kernel for in this build, best first."""
    found: dict[str, list[str]] = {}
    for operation, isa in _native.registered():
        found.setdefault(operation, []).append(isa)
    return found


def chosen(operation: str) -> str:
    """The instruction set whose kernel `operation` would run with now."""
    return _native.chosen(operation)
