"""Which instruction sets and kernels there are, and which kernel an operation takes.

The highest instruction set that this machine has is in force, unless the environment variable TILEPRESS_ISA names
another when it is first asked for, or `forced_isa` does; an operation takes the best of its kernels that the set in
force permits.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def forced_isa(isa: str | None) -> Iterator[None]:
    """Within the context, that instruction set is in force, for all threads; None forces nothing.

    Raises:
        ValueError: this machine does not have it.
    """
    before = _native.force_isa(isa or "")
    try:
        yield
    finally:
        _native.force_isa(before)


@contextmanager
def batch_invariant(wanted: bool = True) -> Iterator[None]:
    """Within the context, for all threads, a row's result is the same bits whatever batch it is in.

    `linear` with float activations chooses its kernel by the number of rows, and kernels add in different orders. In
    this mode it always runs matmul_f32_f32_f32: one sum for each output, from the first input to the last, each
    product added with one rounding (the portable kernel on x86: two). The environment variable
    TILEPRESS_BATCH_INVARIANT=1 sets the mode for a whole process. Integer activations are exact, so they need none.
    """
    before = _native.set_batch_invariant(wanted)
    try:
        yield
    finally:
        _native.set_batch_invariant(before)


def registered() -> dict[str, list[str]]:
    """Operation → the instruction sets it has a kernel for in this build, best first."""
    kernels: dict[str, list[str]] = {}
    for operation, isa, _, _ in _native.registered():
        kernels.setdefault(operation, []).append(isa)
    return kernels


def chosen(operation: str) -> str:
    """The instruction set whose kernel `operation` would run with now."""
    return _native.chosen(operation)
