"""How products are mapped to an array: pinned, as a machine's description has it, or the best of all mappings.

The search is exhaustive over `space.Space` and simulates few of it: energy of all mappings is known at once, and a
bound below which no time can be; in the order of what they promise, mappings are simulated until no other can be
better. `reference.best_plan` simulates every one.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np

from ...hardware import Accelerator
from . import engine
from .plan import ORDERS, Order, Plan, pinned_plan
from .space import Floats, Space
from .workload import Gemm

Objective = Literal["time", "energy", "edp"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_Amount = TypeVar("_Amount", float, Floats)


@dataclass(frozen=True)
class Mapper:
    """`objective`: what the best mapping of each product has least of; None pins mappings to the machine's description.
    `order`: instead of the machine's, or of both."""

    objective: Objective | None = "edp"
    order: Order | None = None

    @property
    def name(self) -> Literal["pinned", "best"]:
        return "pinned" if self.objective is None else "best"

    def plan(self, machine: Accelerator, gemm: Gemm) -> Plan:
        if self.objective is None:
            return pinned_plan(machine, gemm, self.order)
        return best_plan(machine, gemm, self.objective, (self.order,) if self.order else ORDERS)


PINNED, BEST = Mapper(None), Mapper()


def score(objective: Objective, time: _Amount, energy: _Amount) -> tuple[_Amount, _Amount]:
    """What is to be least, and what decides between equals."""
    if objective == "time":
        return time, energy
    return (energy, time) if objective == "energy" else (time * energy, time)


def best_plan(
    machine: Accelerator, gemm: Gemm, objective: Objective = "edp", orders: tuple[Order, ...] = ORDERS
) -> Plan:
    """The mapping of least time, energy, or energy times delay."""
    space = Space(machine, gemm, orders)
    first, second = score(objective, space.least_time, space.energy)
    best_key, best = (math.inf, math.inf), space.plan(0)
    for index in np.lexsort((second, first)):
        if (first[index], second[index]) > best_key:
            break
        plan = space.plan(index)
        key = score(objective, float(engine.run(plan).total), float(space.energy[index]))
        if key < best_key:
            best_key, best = key, plan
    return best
