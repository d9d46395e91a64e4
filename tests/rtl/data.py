"""Random and corner vectors of units: FP16 values, FP32 patterns."""

import struct

import numpy as np

EDGES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF], np.uint16)


def halves(random, *shape):
    """Finite FP16 values: of any pattern, all alike, near each other, subnormal, or signed zeros and other edges."""
    kind = random.integers(6)
    if kind == 0:
        return random.choice(EDGES, shape).view(np.float16)
    if kind == 1:
        return np.full(shape, random.choice(EDGES)).view(np.float16)
    bits = random.integers(0, 1 << 16, shape, np.uint16)
    if kind == 2:
        bits = bits & 0x83FF
    if kind == 3:
        bits = bits & 0x8FFF | 0x3000
    infinite = bits & 0x7C00 == 0x7C00
    return np.where(infinite, bits & 0xBFFF, bits).astype(np.uint16).view(np.float16)


def half_bits(values):
    return np.asarray(values, np.float16).view(np.uint16)


def single(random):
    """A finite FP32 number: subnormal, of any exponent, or of an ordinary size."""
    kind, pattern = random.integers(4), int(random.integers(0, 1 << 32))
    if kind == 0:
        return from_bits(pattern & 0x807FFFFF)
    if kind == 1:
        return from_bits(pattern if pattern & 0x7F800000 != 0x7F800000 else pattern & 0xBFFFFFFF)
    return float(np.float32(random.standard_normal() * 2.0 ** random.integers(-20, 20)))


def to_bits(value):
    """FP32's pattern; a float beyond its largest is infinite."""
    return int(np.float32(value).view(np.uint32))


def from_bits(pattern):
    return struct.unpack("<f", struct.pack("<I", pattern))[0]
