"""Dot products for rival units, and what must come out: the clocked models' bits, in their cycles."""

import numpy as np
import torch

from tests.rtl.clocked import clocked, enough, packed
from tests.rtl.data import half_bits, halves, single, to_bits
from tilepress.rtl.rivals.figna import Figna, FignaParameters
from tilepress.rtl.rivals.fp_fp import FpFp, FpFpParameters
from tilepress.rtl.rivals.fp_int import FpInt, FpIntParameters
from tilepress.rtl.rivals.ifpu import Ifpu, IfpuParameters
from tilepress.simulate.units import rivals
from tilepress.simulate.units.dot import Weights
from tilepress.simulate.units.rivals import Rival

GROUP = 64


def any_dot(random, scale=single):
    x = torch.from_numpy(halves(random, int(random.integers(1, 150))))
    least, most = ((-8, 8), (-8, -7), (7, 8))[random.integers(3)]
    scales = torch.tensor([scale(random) for _ in range(-(-len(x) // GROUP))])
    return x, Weights(torch.from_numpy(random.integers(least, most, len(x))), scales, GROUP)


def pairs(x, weights):
    """(pattern of the activation, weight, pattern of its scale, ends a group, first group, last group)."""
    for index, pattern in enumerate(half_bits(x.numpy()).tolist()):
        group, is_end = index // GROUP, index % GROUP == GROUP - 1 or index == len(x) - 1
        marks = is_end, group == 0, group == len(weights.scales) - 1
        yield pattern, int(weights.integers[index]), to_bits(weights.scales[group]), *marks


def fp_fp_inputs(x, weights):
    last = len(x) - 1
    for index, (activation, weight, scale, *_) in enumerate(pairs(x, weights)):
        marks = {"first": int(index == 0), "last": int(index == last)}
        yield {"valid": 1, "activation": activation, "weight": weight, "scale": scale, **marks}


def scaling(scale, is_first, is_last):
    return scale | is_first << 32 | is_last << 33


def fp_int_inputs(x, weights):
    for activation, weight, scale, is_end, *marks in pairs(x, weights):
        group = {"ends_group": int(is_end), "scaling": scaling(scale, *marks)}
        yield {"valid": 1, "activation": activation, "weight": weight, **group}


def figna_inputs(x, weights, lanes):
    """Cycles of one dot product's pairs, `lanes` at a time."""
    every = list(pairs(x, weights))
    for top in range(0, len(every), GROUP):
        group = every[top : top + GROUP]
        *_, scale, _, is_first, is_last = group[-1]
        for first in range(0, len(group), lanes):
            some = group[first : first + lanes]
            yield {
                "activations": packed([pair[0] for pair in some], 16),
                "weights": packed([pair[1] for pair in some], 4),
                "ends_group": int(first + lanes >= len(group)),
                "scaling": scaling(scale, is_first, is_last),
            }


def coming_before(cycles):
    """Values of a group come in the cycles in which the group before is multiplied, or in ones of their own."""
    groups, group = [], []
    for cycle in cycles:
        group.append(cycle)
        if cycle["ends_group"]:
            groups.append(group)
            group = []
    inputs = []
    for now, after in zip([[], *groups], [*groups, []], strict=True):
        for step in range(max(len(now), len(after))):
            inputs.append({"valid": int(step < len(now)), "coming_valid": int(step < len(after))})
            inputs[-1] |= now[step] if step < len(now) else {}
            if step < len(after):
                inputs[-1] |= {"coming": after[step]["activations"], "coming_ends_group": after[step]["ends_group"]}
    return inputs


def run(unit, inputs, steps):
    """Total and cycles of each dot product, of which each takes so many `steps` of valid inputs."""
    idle = {name: 0 for name in inputs[0] if name.endswith("valid")}
    seen = clocked(unit, [*inputs, *[idle] * 4], ["done", "total"])
    ends = [(cycle, total) for cycle, (done, total) in enumerate(seen) if done]
    valid = [cycle for cycle, given in enumerate(inputs) if given["valid"]]
    starts = [valid[first] for first in np.cumsum([0, *steps[:-1]])]
    return [(total, end + 1 - start) for (end, total), start in zip(ends, starts, strict=True)]


def fitting(random):
    """A scale that leaves weights of four bits in the range of FP16."""
    scale = single(random)
    return scale if abs(scale) < 8000 else scale * 2.0**-120


SERIAL = {
    Rival.fp_fp: (lambda: FpFp(FpFpParameters()), fp_fp_inputs, rivals.FpFp, fitting),
    Rival.fp_int: (lambda: FpInt(FpIntParameters()), fp_int_inputs, rivals.FpInt, single),
}


def ifpu_inputs(dots, pauses=lambda: 0):
    """Each group is loaded beside the last word of the group before."""
    inputs = [{"valid": 0, "load": 0}]
    for x, weights in dots:
        values = np.zeros(-(-len(x) // GROUP) * GROUP, np.float16)
        values[: len(x)] = x.numpy()
        integers, scales = weights.cut(len(x), GROUP)
        for group, scale in enumerate(scales):
            of_group = half_bits(values[group * GROUP : (group + 1) * GROUP])
            inputs[-1] |= {"load": 1, "activations": packed(of_group, 16)}
            marks = {"scale": to_bits(scale), "first": int(group == 0), "last": int(group == len(scales) - 1)}
            for place in reversed(range(4)):
                inputs += [{"valid": 0, "load": 0}] * pauses()
                inputs.append({"valid": 1, "load": 0, "word": packed(integers[group] >> place, 1), **marks})
    return inputs


def assert_serial(rival, dots, pauses=None):
    """The model's bits; without pauses its cycles too."""
    unit, pair_inputs, model, _ = SERIAL[rival]
    inputs = []
    for dot in dots:
        for given in pair_inputs(*dot):
            inputs += [given, *[{"valid": 0}] * (pauses() if pauses else 0)]
    results = run(unit(), inputs, [len(x) for x, _ in dots])
    expected = [model().dot(x, weights) for x, weights in dots]
    assert [total for total, _ in results] == [to_bits(one.total) for one in expected]
    assert pauses or [cycles for _, cycles in results] == [one.cycles for one in expected]


def assert_figna(mantissa, dots):
    inputs = coming_before(given for dot in dots for given in figna_inputs(*dot, lanes=1))
    results = run(Figna(FignaParameters(mantissa)), inputs, [len(x) for x, _ in dots])
    for (x, weights), (total, cycles) in zip(dots, results, strict=True):
        model = rivals.Figna(mantissa).dot(x, weights)
        assert (total, cycles) == (to_bits(model.total), model.cycles)


def assert_ifpu(mantissa, dots):
    """FIGNA's bits, in its own number of cycles: the text gives no figures."""
    parameters, groups = IfpuParameters(mantissa), [len(weights.scales) for _, weights in dots]
    results = run(Ifpu(parameters), ifpu_inputs(dots), [4 * count for count in groups])
    assert [total for total, _ in results] == [to_bits(rivals.Figna(mantissa).dot(*dot).total) for dot in dots]
    assert [cycles for _, cycles in results] == [parameters.cycles(count) for count in groups]


def check_serial(rival, seed, vectors):
    """Pairs of random dot products, at least so many; how many."""
    random, scale = np.random.default_rng(seed), SERIAL[rival][-1]
    dots, count = enough(lambda: any_dot(random, scale), lambda dot: len(dot[0]), vectors)
    assert_serial(rival, dots)
    return count


def check_figna(seed, vectors):
    """As `check_serial`."""
    random = np.random.default_rng(seed)
    dots, count = enough(lambda: any_dot(random), lambda dot: len(dot[0]), vectors)
    assert_figna((8, 11, 13, 14, 24)[seed % 5], dots)
    return count


def check_ifpu(seed, vectors):
    """Words of random dot products, at least so many; how many."""
    random = np.random.default_rng(seed)
    dots, count = enough(lambda: any_dot(random), lambda dot: 4 * len(dot[1].scales), vectors)
    assert_ifpu((4, 14, 24)[seed % 3], dots)
    return count
