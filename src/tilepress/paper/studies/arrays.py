"""Models on arrays of units: what the studies of Anda's and Harmonia's hardware are made of."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...hardware import Accelerator
    from ...simulate.arrays import Result
    from ...simulate.arrays.workload import Scope

SEQUENCE = 2048  # the longest that most models of either paper take


def run(
    machine: "Accelerator", model: str, activations: str, scope: "Scope" = "linear", tokens: int = SEQUENCE
) -> "Result":
    """A prompt, products alone."""
    from ...simulate.arrays import Task, simulate
    from ...simulate.layers import find_transformer

    task = Task(find_transformer(model), "prefill", tokens, 1, activations, scope=scope, products_only=True)
    return simulate(machine, task)


def accelerator(name: str) -> "Accelerator":
    """The one called `name`; imported here, since listing items needs none."""
    from ...hardware import read_accelerator

    return read_accelerator(name)
