from tilepress.formats import parse_weight
from tilepress.hardware import read_machine
from tilepress.simulate.deca import Accelerated, simulate
from tilepress.simulate.deca.timeline import STEPS, steps


def test_steps_follow_each_other():
    machine = read_machine("spr-hbm").changed(cores=2)
    result = simulate(machine, Accelerated(), parse_weight("bf8"), 0.2, weights=2 * 512 * 50)
    for tile in range(50):
        spans = steps(result, 1, tile)
        assert list(spans) == list(STEPS) and all(length >= 0 for _, length in spans.values())
        ends = [first + length for first, length in spans.values()]
        starts = [first for first, _ in spans.values()]
        assert starts[1:4] == ends[:3] and starts[4] >= ends[3]
