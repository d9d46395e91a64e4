"""Dot products for Anda's unit, and what must come out: the clocked model's bits, in its cycles."""

import numpy as np
import torch

from tests.rtl.clocked import clocked, enough, packed
from tests.rtl.data import halves, single, to_bits
from tilepress.formats.bfp import BFP, BitPlanes, encode, pack_planes
from tilepress.rtl.anda.apu import Apu, ApuParameters
from tilepress.simulate.units import anda_apu
from tilepress.simulate.units.dot import Weights

LANES = 64


def sign_word(planes, group, mark):
    return {
        "valid": 1,
        "load": 0,
        "weights": 0,
        "scale": 0,
        "word": packed(planes.planes[group, 0].tolist(), 8),
        "exponent": int(planes.exponent[group]),
        "planes": planes.format.mantissa,
        "first": int(group == 0),
        "last": int(mark),
    }


def loading(weights, group):
    integers, scales = weights.cut(len(weights.integers), LANES)
    return {"load": 1, "weights": packed(integers[group], 4), "scale": to_bits(scales[group])}


def schedule(dots, pauses=lambda: 0):
    """Cycles of inputs for one dot product after another, each group's weights loaded beside the last word of the group
    before; and the cycle that each dot product's first word comes in."""
    inputs, starts = [{"valid": 0}], []
    for planes, weights in dots:
        starts.append(len(inputs))
        groups = len(planes.exponent)
        for group in range(groups):
            inputs[-1] |= loading(weights, group)
            words = [{"valid": 1, "load": 0, "word": packed(word, 8)} for word in planes.planes[group].tolist()]
            words[0] |= sign_word(planes, group, group == groups - 1)
            for word in words:
                inputs += [word, *[{"valid": 0, "load": 0} for _ in range(pauses())]]
    return inputs + [{"valid": 0, "load": 0}] * 4, starts


def run(parameters, dots, pauses=lambda: 0):
    """Total and cycles of each dot product."""
    inputs, starts = schedule(dots, pauses)
    seen = clocked(Apu(parameters), inputs, ["done", "total"])
    ends = [(cycle, total) for cycle, (done, total) in enumerate(seen) if done]
    return [(total, end + 1 - start) for (end, total), start in zip(ends, starts, strict=True)]


def any_planes(random, groups, mantissa):
    """Encoded values, or any planes that a group can have: all ones and all zeros among them."""
    if random.integers(2):
        return pack_planes(encode(torch.from_numpy(halves(random, groups * LANES)), BFP(LANES, mantissa)))
    bytes = random.integers(0, 256, (groups, 1 + mantissa, LANES // 8), np.uint8)
    bytes |= np.uint8(255) * random.integers(0, 2, (groups, 1, 1), np.uint8)
    exponent = torch.from_numpy(random.integers(0, 31, groups, np.uint8))
    return BitPlanes(BFP(LANES, mantissa), (groups * LANES,), 0, torch.from_numpy(bytes), exponent)


def any_weights(random, groups):
    least, most = ((-8, 8), (-8, -7), (7, 8))[random.integers(3)]
    scales = torch.tensor([single(random) for _ in range(groups)])
    return Weights(torch.from_numpy(random.integers(least, most, groups * LANES)), scales, LANES)


def any_dot(random):
    groups, mantissa = int(random.integers(1, 4)), int(random.integers(1, 17))
    return any_planes(random, groups, mantissa), any_weights(random, groups)


def assert_as_modelled(dots, intermediate="fp32"):
    results = run(ApuParameters(intermediate=intermediate), dots)
    for (planes, weights), (total, cycles) in zip(dots, results, strict=True):
        model = anda_apu.Apu(planes.format.mantissa, intermediate).dot(planes, weights)
        assert total == to_bits(model.total)
        assert cycles == model.cycles


def check(seed, vectors):
    """Words of random dot products, at least so many; how many."""
    random = np.random.default_rng(seed)
    dots, words = enough(lambda: any_dot(random), lambda dot: dot[0].planes[..., 0].numel(), vectors)
    assert_as_modelled(dots, ("fp32", "fp16")[seed % 2])
    return words
