"""A task on an accelerator: time, energy by part, traffic, and which part was the bottleneck of each product."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...hardware import Accelerator, MachineError
from . import engine
from .costs import DRAM, area, auxiliary, breakdown, energy
from .engine import Times
from .plan import Order, Plan, make_plan
from .workload import Gemm, Task, gemms


@dataclass(frozen=True)
class Product:
    """One kind of matrix product of a task. `times`: of one of its `plan.gemm.count`."""

    plan: Plan
    times: Times
    energy: dict[str, float]

    @property
    def cycles(self) -> int:
        return self.times.total * self.plan.gemm.count

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
        return {name: 1e-12 * sum(one.energy[name] for one in self.products) for name in names}

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
        return sum(one.plan.traffic.total * one.plan.gemm.count for one in self.products) / 8

    @property
    def utilisation(self) -> float:
        """Share of the time in which arrays were at work."""
        return sum(one.times.array * one.plan.gemm.count for one in self.products) / self.cycles


def simulate(machine: Accelerator, task: Task, order: Order | None = None) -> Result:
    """One product after the other; those that the array cannot do go to the FP16 array beside it."""
    products = [_product(_for(machine, one), one, order) for one in gemms(task, machine)]
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


def _product(machine: Accelerator, gemm: Gemm, order: Order | None) -> Product:
    plan = make_plan(machine, gemm, order)
    return Product(plan, engine.run(plan), energy(plan))
