"""Floating point of hardware against exact fractions rounded once (`simulate.units.rounding`), and numpy's casts."""

from fractions import Fraction

import numpy as np
import pytest
from amaranth.hdl import signed

from tests.rtl.clocked import VECTORS, combinational, vectors
from tests.rtl.data import from_bits, single, to_bits
from tilepress.rtl.floating import FP16, FP32, Convert, MultiplyAdd, Round, Widen
from tilepress.simulate.units.rounding import WIDTHS, convert, multiply_add, nearest

FORMATS = {FP16: WIDTHS["fp16"], FP32: WIDTHS["fp32"]}


def near_cancellation(random, a, b):
    """An addend that nearly cancels a · b, or nearly doubles it."""
    with np.errstate(over="ignore"):
        product = abs(float(np.float32(a * b)))
    pattern = to_bits(min(product, from_bits(FP32.infinity - 1))) + int(random.integers(-2, 3))
    return from_bits(min(max(pattern, 0), FP32.infinity - 1)) * random.choice([-1, 1])


def few_bits(random):
    """A subnormal number of few bits times a large one, and an addend that reaches below their product."""
    a, b = (
        2.0**-149 * int(random.integers(1, 4)),
        float(np.float32(random.uniform(1, 2) * 2.0 ** random.integers(24, 127))),
    )
    return a, b, float(np.float32(random.choice([-1, 1]) * a * b * random.uniform(0.01, 1.2)))


def ties(random):
    """A product half way between two numbers of FP32, and an addend too small for any place but to decide."""
    half = 1 + 2.0**-12
    return half, half * random.choice([-1, 1]), random.choice([-1, 1]) * 2.0 ** -int(random.integers(60, 149))


EDGES = [
    (1.0, -1.0, np.inf),
    (3e38, 3e38, -np.inf),
    (3e38, 3e38, 0.0),
    (-3e38, 3e38, 1.0),
    (0.0, -1.0, -0.0),
    (0.0, 3e38, 2.0**-149),
    (0.0, -3e38, 1.2e-38),
]


def test_multiply_and_add_round_once():
    random, triples = np.random.default_rng(0), list(EDGES)
    for _ in range(vectors(200)):
        a, b = single(random), single(random)
        triples.append((a, b, single(random) if random.integers(2) else near_cancellation(random, a, b)))
    triples += [make(random) for make in (few_bits, ties) for _ in range(vectors(60))]
    inputs = [dict(zip(("a", "b", "addend"), map(to_bits, triple), strict=True)) for triple in triples]
    for (value,), triple in zip(combinational(MultiplyAdd(FP32, FP32), inputs, ["value"]), triples, strict=True):
        assert value == to_bits(multiply_add(*map(float, triple))), triple


def any_halves(random, count):
    """Finite patterns of FP16 [count]."""
    patterns = random.integers(0, 0x7C00, count) >> random.integers(0, 15, count) * random.integers(0, 2, count)
    return (patterns | random.integers(0, 2, count) << 15).astype(np.uint16)


def in_halves(triples):
    """Patterns of a · b + addend, of those of three FP16 numbers each."""
    inputs = [dict(zip(("a", "b", "addend"), map(int, triple), strict=True)) for triple in triples]
    return [value for (value,) in combinational(MultiplyAdd(FP16, FP16, FP16), inputs, ["value"])]


def test_halves_are_multiplied_and_added_with_one_rounding():
    """Addends of any size, of that of the product, or a few units from it, so that it cancels."""
    random, count = np.random.default_rng(3), vectors(600)
    a, b, addend = (any_halves(random, count) for _ in range(3))
    with np.errstate(over="ignore"):
        product = (a.view(np.float16) * b.view(np.float16)).view(np.uint16)
    near = np.clip((product & 0x7FFF).astype(int) + random.integers(-2, 3, count), 0, 0x7C00) | ~product & 0x8000
    far = np.clip((product & 0x7FFF).astype(int) + (random.integers(-14, 15, count) << 10), 0, 0x7BFF) | addend & 0x8000
    kind = random.integers(0, 3, count)
    triples = np.stack([a, b, np.choose(kind, [addend, near, far])], 1).astype(np.uint16)
    expected = [multiply_add(*map(float, triple), WIDTHS["fp16"]) for triple in triples.view(np.float16)]
    assert len({value for value in expected if abs(value) < 2.0**-14}) > count // 20  # subnormals too
    assert in_halves(triples) == [bits_of(value, FP16) for value in expected]


def test_products_and_sums_of_halves_are_numpys():
    """But for signs of zeros."""
    random, count = np.random.default_rng(4), vectors(300)
    a, b = any_halves(random, count), any_halves(random, count)
    with np.errstate(over="ignore"):
        products, sums = a.view(np.float16) * b.view(np.float16), a.view(np.float16) + b.view(np.float16)
    for triples, expected in (
        (np.stack([a, b, np.zeros_like(a)], 1), products),
        (np.stack([a, np.full_like(a, FP16.one), b], 1), sums),
    ):
        assert (np.array(in_halves(triples), np.uint16).view(np.float16) == expected).all()


def bits_of(value, format):
    return to_bits(value) if format is FP32 else int(np.float16(value).view(np.uint16))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("magnitude_bits", [5, 40])
def test_round_is_a_cast(format, magnitude_bits):
    random, inputs, expected = np.random.default_rng(1), [], []
    for _ in range(vectors(250)):
        magnitude = int(random.integers(0, 1 << magnitude_bits)) >> int(random.integers(magnitude_bits))
        power, sign = int(random.integers(-200, 150)), int(random.integers(2))
        inputs.append({"sign": sign, "magnitude": magnitude, "power": power})
        size = nearest(magnitude * Fraction(2) ** power, FORMATS[format])
        expected.append(bits_of(-size if sign else size, format))
    unit = Round(magnitude_bits, signed(9), format, saturate=False)
    assert [value for (value,) in combinational(unit, inputs, ["value"])] == expected


def test_ties_go_to_even_also_of_subnormals():
    cases = [(0x801, -24), (0x803, -24), (0x805, -25), (0x3, -25), (0x1, -25), (0x1FFF, 3), (0x1FFD, 3)]
    unit = Round(13, signed(9), FP16, saturate=False)
    inputs = [{"sign": 0, "magnitude": magnitude, "power": power} for magnitude, power in cases]
    with np.errstate(over="ignore"):
        expected = [bits_of(magnitude * 2.0**power, FP16) for magnitude, power in cases]
    assert [value for (value,) in combinational(unit, inputs, ["value"])] == expected


@pytest.mark.parametrize("format", FORMATS)
def test_conversion_saturates(format):
    random = np.random.default_rng(2)
    cases = [(int(random.integers(-(2**21), 2**21)), int(random.integers(-128, 128))) for _ in range(vectors(250))]
    unit = Convert(22, signed(8), format)
    seen = combinational(unit, [{"integer": integer, "power": power} for integer, power in cases], ["value"])
    assert [value for (value,) in seen] == [to_bits(convert(*case, FORMATS[format])) for case in cases]


def test_halves_are_widened():
    patterns = np.arange(0, 0x7C00, 1 if VECTORS else 53, dtype=np.uint16)
    seen = combinational(Widen(FP16), [{"narrow": int(pattern)} for pattern in patterns], ["value"])
    values = patterns.view(np.float16).astype(np.float32)
    assert [value for (value,) in seen] == values.view(np.uint32).tolist()
