"""How tests clock a unit, and how many vectors they give it."""

import os

from amaranth.sim import Simulator

VECTORS = int(os.environ.get("TILEPRESS_RTL_VECTORS") or 0)  # of each test; 100000 is a long run


def vectors(quick):
    return VECTORS or quick


def clocked(unit, inputs, outputs, ports=None):
    """Gives a unit one dict of inputs a cycle; the values of `outputs` after each cycle's edge, a tuple a cycle.

    An input that a cycle does not name keeps its value. `ports` by name, if they are not the unit's own.
    """
    seen, port_of = [], ports.get if ports else lambda name: plain(getattr(unit, name))

    async def testbench(context):
        watched = [port_of(name) for name in outputs]
        for cycle in inputs:
            for name, value in cycle.items():
                context.set(port_of(name), value)
            await context.tick()
            seen.append(tuple(context.get(port) for port in watched))

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


def enough(make, size, least):
    """What `make` gives, again and again until the sum of sizes is `least` or more; and that sum."""
    made, total = [], 0
    while total < least:
        made.append(make())
        total += size(made[-1])
    return made, total
