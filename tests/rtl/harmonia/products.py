"""Dot products for Harmonia's element, and what must come out: the clocked model's bits, in its cycles."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from tests.rtl.clocked import clocked, enough, packed
from tests.rtl.data import halves, single, to_bits
from tests.simulate.units.matrices import narrowed
from tilepress.formats.bfp import BFP, BFPTensor, encode
from tilepress.rtl.harmonia import pe
from tilepress.rtl.harmonia.pe import Pe, PeParameters
from tilepress.simulate.units import harmonia_pe
from tilepress.simulate.units.dot import Weights
from tilepress.simulate.units.harmonia_pe import Mode, attention_pairs, linear_pairs, rounds

GROUP = 32
LANES = 8
ENCODED = {mode: pe.Mode[mode.name.upper()].value for mode in Mode}


@dataclass(frozen=True)
class Product:
    """What the model takes; exponents of both sides and the scale of each group; widths of mantissas in each mode."""

    pairs: list
    of_groups: list
    mantissas: dict


def operands(values, bits):
    """Signed magnitudes as the element has them: magnitude, then sign."""
    return [abs(int(value)) | (int(value) < 0) << bits for value in values]


def sides(pair):
    """What the sub-PEs of one group take: (left, right) each."""
    if pair.mode is Mode.m8w4:
        return [(operands(pair.left, 8), [int(weight) & 15 for weight in pair.right])]
    sign, magnitude = (pair.right < 0) * 16, np.abs(pair.right)
    if pair.mode is Mode.m8m4:
        return [(operands(pair.left, 8), (magnitude | sign).tolist())]
    high, low = ((part | sign).tolist() for part in (magnitude >> 4, magnitude & 15))
    return [(operands(pair.left, 8), high), ([0] * GROUP, low)]


def round_inputs(mode, pairs, of_groups, mantissas, first, last):
    """Four cycles."""
    sub_pes = [side for pair in pairs for side in sides(pair)]
    for start in range(0, GROUP, LANES):
        part = slice(start, start + LANES)
        yield {
            "valid": 1,
            "mode": ENCODED[mode],
            "left": packed([packed(left[part], 9) for left, _ in sub_pes], 9 * LANES),
            "right": packed([packed(right[part], 5) for _, right in sub_pes], 5 * LANES),
            "groups": len(pairs),
            "of_groups": packed([a | b << 5 | to_bits(scale) << 10 for a, b, scale in of_groups], 42),
            "left_mantissa": mantissas[0],
            "right_mantissa": mantissas[1],
            "first": int(first),
            "last": int(last),
        }


def product_inputs(product):
    done, modes = 0, [pair.mode for pair in product.pairs]
    for mode, count in rounds(modes):
        part = slice(done, done + count)
        marks = done == 0, done + count == len(modes)
        yield from round_inputs(mode, product.pairs[part], product.of_groups[part], product.mantissas[mode], *marks)
        done += count


def run(products, intermediate="fp32", pauses=lambda: 0):
    """Total and cycles of each dot product, one after another without a pause."""
    inputs, starts = [], []
    for product in products:
        starts.append(len(inputs))
        for cycle in product_inputs(product):
            inputs += [cycle, *[{"valid": 0}] * pauses()]
    seen = clocked(Pe(PeParameters(intermediate=intermediate)), inputs + [{"valid": 0}] * 8, ["done", "total"])
    ends = [(cycle, total) for cycle, (done, total) in enumerate(seen) if done]
    return [(total, end + 1 - start) for (end, total), start in zip(ends, starts, strict=True)]


def row(random, groups, mantissa, inputs=None):
    """Encoded values, or any magnitudes and exponents that there can be, all ones among them."""
    inputs = inputs or groups * GROUP
    encoded = encode(torch.from_numpy(halves(random, inputs)), BFP(GROUP, mantissa))
    if random.integers(2):
        return encoded
    top = (1 << mantissa) - 1
    magnitude = torch.from_numpy(random.integers(0, 1 << mantissa, (groups, GROUP)).astype(np.int32))
    if random.integers(2):
        magnitude = torch.full_like(magnitude, top)
    exponent = torch.from_numpy(random.integers(0, 31, groups).astype(np.uint8))
    sign = torch.from_numpy(random.integers(0, 2, (groups, GROUP)) > 0)
    return BFPTensor(BFP(GROUP, mantissa), (inputs,), 0, sign, magnitude, exponent)


def linear(random, groups):
    left = row(random, groups, int(random.integers(1, 9)))
    least, most = ((-8, 8), (-8, -7), (7, 8))[random.integers(3)]
    scales = [single(random) for _ in range(groups)]
    weights = Weights(torch.from_numpy(random.integers(least, most, groups * GROUP)), torch.tensor(scales), GROUP)
    return linear_product(left, weights)


def linear_product(left, weights):
    pairs = linear_pairs(left, weights)
    scales = [pair.scale for pair in pairs]
    of_groups = [(exponent, 0, scale) for exponent, scale in zip(left.exponent.tolist(), scales, strict=True)]
    return Product(pairs, of_groups, {Mode.m8w4: (left.format.mantissa, 1)})


def attention(random, groups):
    left = row(random, groups, int(random.integers(1, 9)))
    right = row(random, groups, int(random.integers(1, 9)))
    both = zip(left.exponent.tolist(), right.exponent.tolist(), strict=True)
    of_groups = [(a, b, single(random)) for a, b in both]  # a scale that nobody may look at
    mantissas = left.format.mantissa, right.format.mantissa
    return Product(attention_pairs(left, right), of_groups, {Mode.m8m4: mantissas, Mode.m8m8: mantissas})


def mixed(random, groups):
    """Groups of eight and of four bits in one dot product, as where two kinds of tokens meet in a cache."""
    left, right = row(random, groups, 8), row(random, groups, 8)
    keep = torch.from_numpy(random.integers(0, 2, (groups, 1)))
    right = replace(right, magnitude=torch.where(keep > 0, right.magnitude, right.magnitude >> 4 << 4))
    pairs = [narrowed(pair) for pair in attention_pairs(left, right)]
    of_groups = [(a, b, 0.0) for a, b in zip(left.exponent.tolist(), right.exponent.tolist(), strict=True)]
    return Product(pairs, of_groups, {Mode.m8m4: (8, 4), Mode.m8m8: (8, 8)})


def any_product(random):
    return (linear, attention, mixed)[random.integers(3)](random, int(random.integers(1, 8)))


def assert_as_modelled(products, intermediate="fp32"):
    for product, (total, cycles) in zip(products, run(products, intermediate), strict=True):
        model = harmonia_pe.Pe(intermediate).dot(product.pairs)
        assert total == to_bits(model.total)
        assert cycles == model.cycles


def check(seed, vectors):
    """Pairs of each sub-PE in random products, at least so many; how many."""
    random = np.random.default_rng(seed)
    products, cycles = enough(lambda: any_product(random), lambda one: len(list(product_inputs(one))), vectors)
    assert_as_modelled(products, ("fp32", "fp16")[seed % 2])
    return cycles
