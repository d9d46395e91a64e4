"""How tests clock a unit, and how many vectors they give it."""

import os

from amaranth.sim import Simulator

VECTORS = int(os.environ.get("TILEPRESS_RTL_VECTORS") or 0)  # of each test; 100000 is a long run


def vectors(quick):
    return VECTORS or quick


def clocked(unit, inputs, outputs):
    """Gives a unit one dict of inputs a cycle; the values of `outputs` after each cycle's edge, a tuple a cycle.

    An input that a cycle does not name keeps its value.
    """
    seen = []

    async def testbench(context):
        ports = [plain(getattr(unit, name)) for name in outputs]
        for cycle in inputs:
            for name, value in cycle.items():
                context.set(plain(getattr(unit, name)), value)
            await context.tick()
            seen.append(tuple(context.get(port) for port in ports))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return seen


def combinational(unit, inputs, outputs):
    """The values of `outputs` for each dict of inputs."""
    seen = []

    async def testbench(context):
        for given in inputs:
            for name, value in given.items():
                context.set(plain(getattr(unit, name)), value)
            seen.append(tuple(context.get(plain(getattr(unit, name))) for name in outputs))

    simulator = Simulator(unit)
    simulator.add_testbench(testbench)
    simulator.run()
    return seen


def plain(port):
    """A port as one number, whatever its layout."""
    return port.as_value() if hasattr(port, "as_value") else port


def packed(values, bits):
    """Integers in fields of `bits`, the first lowest; negative ones in two's complement."""
    return sum((int(value) & (1 << bits) - 1) << bits * place for place, value in enumerate(values))
