"""In plain Python: a plan cycle by cycle, the specification of `engine`; and the best of all mappings by simulating
each of them, the specification of `mapping`."""

from collections import deque
from dataclasses import dataclass, field

from ...hardware import Accelerator
from .costs import energy
from .engine import Times
from .mapping import Objective, score
from .plan import ORDERS, Plan, Step, tile_sizes
from .workload import Gemm


def best_plan(machine: Accelerator, gemm: Gemm, objective: Objective) -> Plan:
    """The mapping of least time, energy, or energy times delay."""
    return min(mappings(machine, gemm), key=lambda plan: plan_score(plan, objective))


def plan_score(plan: Plan, objective: Objective) -> tuple[float, float]:
    return score(objective, float(Reference(plan).run().total), sum(energy(plan).values()))


def mappings(machine: Accelerator, gemm: Gemm) -> list[Plan]:
    return [
        Plan(machine, gemm, order, rows, columns)
        for order in ORDERS
        for rows in tile_sizes("activations", machine, gemm)
        for columns in tile_sizes("weights", machine, gemm)
    ]


@dataclass
class _Part:
    """What does one thing at a time: `left` cycles of it, for the step that is `under_way`."""

    left: int = 0
    under_way: int = -1
    busy: int = 0

    def begin(self, step: int, cycles: int) -> None:
        self.under_way, self.left = step, cycles

    def tick(self) -> int:
        """The step that is done with the end of this cycle, or -1."""
        if self.under_way < 0:
            return -1
        self.left -= 1
        self.busy += 1
        if self.left:
            return -1
        done, self.under_way = self.under_way, -1
        return done


@dataclass
class Reference:
    """Memory, array and what follows it, and how far each has come with the steps of a plan."""

    plan: Plan
    memory: _Part = field(default_factory=_Part)
    array: _Part = field(default_factory=_Part)
    post: _Part = field(default_factory=_Part)
    now: int = 0

    def __post_init__(self) -> None:
        plan = self.plan
        self.steps: list[Step] = [plan.step(outer, inner) for outer in range(plan.outer) for inner in range(plan.inner)]
        self.requests = self._program()
        self.loading = False
        self.loaded = self.computed = self.posted = 0  # steps that are done with it
        self.drained: deque[tuple[int, int]] = deque()  # cycle from which a step's outputs can be taken, step

    def run(self) -> Times:
        while True:
            while self._begin():
                pass
            if self.posted == len(self.steps) and not self.requests and self.memory.under_way < 0:
                break
            self._end()
        return Times(self.now, self.memory.busy, self.array.busy, self.post.busy)

    def _program(self) -> deque[tuple[str, int]]:
        """Requests to memory in their order; what stores nothing asks for nothing."""
        order: list[tuple[str, int]] = []
        for step in range(len(self.steps) + 3):
            if step >= 3 and self.steps[step - 3].store:
                order.append(("store", step - 3))
            if step < len(self.steps):
                order.append(("load", step))
        return deque(order)

    def _begin(self) -> bool:
        """Start what can start now; whether anything did. What takes no time is done at once."""
        return self._ask_memory() or self._compute() or self._take_outputs()

    def _ask_memory(self) -> bool:
        if self.memory.under_way >= 0 or not self.requests:
            return False
        kind, step = self.requests[0]
        if (kind == "load" and self._done_with(step - 2)) or (kind == "store" and self.posted > step):
            self.requests.popleft()
            self.loading = kind == "load"
            cycles = self.steps[step].load if self.loading else self.steps[step].store
            if cycles:
                self.memory.begin(step, cycles)
            else:
                self.loaded += 1
            return True
        return False

    def _done_with(self, step: int) -> bool:
        """Whether the half of the buffer that a step had is free."""
        return self.computed > step and (self.plan.overlapped or self.posted > step)

    def _compute(self) -> bool:
        step = self.computed
        if self.array.under_way >= 0 or step >= self.loaded or not self._done_with(step - 1):
            return False
        self.array.begin(step, self.steps[step].compute)
        return True

    def _take_outputs(self) -> bool:
        if self.post.under_way >= 0 or not self.drained or self.drained[0][0] > self.now:
            return False
        _, step = self.drained.popleft()
        if self.steps[step].post:
            self.post.begin(step, self.steps[step].post)
        else:
            self.posted += 1
        return True

    def _end(self) -> None:
        """One cycle passes."""
        self.now += 1
        if self.memory.tick() >= 0 and self.loading:
            self.loaded += 1
        done = self.array.tick()
        if done >= 0:
            self.computed += 1
            self.drained.append((self.now + self.plan.drain, done))
        if self.post.tick() >= 0:
            self.posted += 1
