"""Tensors for block floating point, drawn and listed, and what makes two results the same."""

import pytest
import torch
from hypothesis import strategies as st

from tilepress.formats.bfp import BFP, GROUPS, BFPTensor

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
MANTISSAS = range(1, 17)
on_mantissas = pytest.mark.parametrize("mantissa", MANTISSAS)
on_groups = pytest.mark.parametrize("group", GROUPS)

# Where the rules change: signed zeros, subnormals, ties, the largest FP16 and what rounds past it.
EDGES = [0.0, -0.0, 1.0, -1.0, 2**-14, 2**-14 - 2**-24, 2**-24, -(2**-24), 2**-25, 2**-25 + 2**-40]
EDGES += [3 * 2**-25, 1 + 2**-11, 1 + 3 * 2**-11, 65504.0, -65504.0, 65519.99609375, 65520.0, -65520.0]
EDGES += [1e-30, 1e38, -1e38]

SHAPES = [(150,), (16,), (0,), (1,), (3, 70), (0, 5), (5, 0), (2, 33, 3), (130, 2), (2, 1, 64)]

floats = st.one_of(
    st.sampled_from(EDGES),
    st.floats(-65504, 65504, width=16),
    st.floats(-2.0, 2.0, width=32),
    st.floats(-(2.0**-13), 2.0**-13, width=32),
    st.floats(-(2.0**126), 2.0**126, width=32),
)
formats = st.builds(BFP, st.sampled_from(GROUPS), st.sampled_from(MANTISSAS))


@st.composite
def tensors(draw):
    """Tensors of 1 to 3 axes, some empty, some ragged, filled at random from a few drawn values."""
    shape = draw(st.sampled_from(SHAPES))
    palette = torch.tensor(draw(st.lists(floats, min_size=1, max_size=12)))
    choice = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = palette[torch.randint(len(palette), shape, generator=choice)]
    dtype = draw(st.sampled_from(DTYPES))
    return x.clamp(-65504, 65504).half() if dtype == torch.float16 else x.to(dtype)


def finite_halves() -> torch.Tensor:
    """All 63488 finite FP16 values, in the order of their bits."""
    halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    return halves[halves.isfinite()]


def varied(count: int, seed: int = 0) -> torch.Tensor:
    """Finite FP16 values drawn evenly from all bit patterns."""
    halves = finite_halves()
    return halves[torch.randint(len(halves), (count,), generator=torch.Generator().manual_seed(seed))]


def same(a: BFPTensor, b: BFPTensor) -> bool:
    parts = [(a.sign, b.sign), (a.magnitude, b.magnitude), (a.exponent, b.exponent)]
    equal = all(x.dtype == y.dtype and torch.equal(x.cpu(), y.cpu()) for x, y in parts)
    return equal and (a.format, a.shape, a.axis, a.overflowed) == (b.format, b.shape, b.axis, b.overflowed)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal floats, with -0.0 distinct from 0.0."""
    whole = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.cpu().view(whole), b.cpu().view(whole))
