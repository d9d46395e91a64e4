"""Inputs of units: FP16 values of every kind."""

import torch
from hypothesis import strategies as st

# Signed zeros, subnormals, the smallest normal number and its neighbour, one, the largest.
EDGES = [0.0, -0.0, 2.0**-24, -(2.0**-24), 2.0**-14 - 2.0**-24, 2.0**-14, 1.0, -1.0, 65504.0, -65504.0]

values = st.one_of(
    st.sampled_from(EDGES),
    st.floats(-65504, 65504, width=16),
    st.floats(-2, 2, width=16),
    st.floats(-(2.0**-13), 2.0**-13, width=16),
)


@st.composite
def halves(draw, *shape):
    """An FP16 tensor of `shape` (of integers or strategies), filled at random from a few drawn values."""
    sizes = [draw(size) if isinstance(size, st.SearchStrategy) else size for size in shape]
    palette = torch.tensor(draw(st.lists(values, min_size=1, max_size=12)), dtype=torch.float16)
    choice = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return palette[torch.randint(len(palette), sizes, generator=choice)]


def spread(*shape, seed=0):
    """FP16 values of many magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    powers = torch.randint(-20, 9, shape, generator=generator)
    return (torch.randn(shape, generator=generator) * torch.exp2(powers.float())).half()
