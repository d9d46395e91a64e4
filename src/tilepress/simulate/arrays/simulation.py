"""A task on an accelerator: time, energy by part, traffic, and which part was the bottleneck of each product."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...hardware import Accelerator, MachineError
from . import engine
from .costs import DRAM, area, auxiliary, breakdown, energy
from .engine import Times
from .mapping import BEST, Mapper
from .plan import Plan
from .workload import Gemm, Task, gemms

PICOJOULE = 1e-12


@dataclass(frozen=True)
class Product:
    """One kind of matrix product of a task. `times`: of one of its `plan.gemm.count`; `energy`: pJ by part, of all."""

    plan: Plan
    times: Times
    energy: dict[str, float]

    @property
    def name(self) -> str:
        gemm = self.plan.gemm
        return f"{gemm.name} {gemm.rows}x{gemm.inputs}x{gemm.columns}"

    @property
    def cycles(self) -> int:
        return self.times.total * self.plan.gemm.count

    @property
    def joules(self) -> float:
        return PICOJOULE * sum(self.energy.values())

    @property
    def dram_bytes(self) -> float:
        return self.plan.traffic.total * self.plan.gemm.count / 8

    @property
    def unit_cycles(self) -> float:
        """Cycles of units at work: each output takes one unit, for all groups of inputs."""
        plan, gemm = self.plan, self.plan.gemm
        groups = math.ceil(gemm.inputs / plan.machine.array.group)
        return gemm.count * gemm.rows * gemm.columns * groups * plan.group_cycles

    @property
    def utilisation(self) -> float:
        """Units at work × time over all units of the array × time."""
        return self.unit_cycles / (self.plan.machine.units * self.cycles)

    @property
    def bound(self) -> str:
        busy = {"memory": self.times.memory, "array": self.times.array, "outputs": self.times.post}
        return max(busy, key=busy.__getitem__)


@dataclass(frozen=True)
class Result:
    """`energy`: joules by part; `area`: mm² by part."""

    machine: Accelerator
    products: Sequence[Product]
    area: dict[str, float]

    @property
    def cycles(self) -> int:
        return sum(one.cycles for one in self.products)

    @property
    def seconds(self) -> float:
        return self.cycles / self.machine.frequency

    @property
    def energy(self) -> dict[str, float]:
        names = self.products[0].energy
        return {name: PICOJOULE * sum(one.energy[name] for one in self.products) for name in names}

    @property
    def breakdown(self) -> dict[str, float]:
        """Joules of compute, SRAM and DRAM."""
        return breakdown(self.energy)

    @property
    def watts(self) -> float:
        """Of the chip, without memory."""
        return (self.joules - self.energy[DRAM]) / self.seconds

    @property
    def joules(self) -> float:
        return sum(self.energy.values())

    @property
    def mm2(self) -> float:
        return sum(self.area.values())

    @property
    def operations(self) -> int:
        """Two for each product of numbers."""
        return 2 * sum(one.plan.gemm.products for one in self.products)

    @property
    def dram_bytes(self) -> float:
        return sum(one.dram_bytes for one in self.products)

    @property
    def utilisation(self) -> float:
        """Units at work × time over all units × time, those of the array that each product is on."""
        possible = sum(one.plan.machine.units * one.cycles for one in self.products)
        return sum(one.unit_cycles for one in self.products) / possible


def simulate(machine: Accelerator, task: Task, mapper: Mapper = BEST) -> Result:
    """One product after the other; those that the array cannot do go to the FP16 array beside it."""
    products = [_product(_for(machine, one), one, mapper) for one in gemms(task, machine)]
    return Result(machine, products, area(machine, attention=task.scope != "linear"))


def _for(machine: Accelerator, gemm: Gemm) -> Accelerator:
    """The array itself, or the auxiliary one for attention if it has none."""
    try:
        machine.mode(gemm.activations.kind, gemm.activations.mantissa, gemm.other.kind, gemm.other.mantissa)
    except MachineError:
        if machine.auxiliary and gemm.activations.kind == gemm.other.kind == "fp16":
            return auxiliary(machine)
        raise
    return machine


def _product(machine: Accelerator, gemm: Gemm, mapper: Mapper) -> Product:
    plan = mapper.plan(machine, gemm)
    return Product(plan, engine.run(plan), energy(plan))
