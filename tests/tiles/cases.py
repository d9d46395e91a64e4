"""Formats and matrices that several tests run through."""

import numpy as np
import torch

from tilepress.formats import Scaling, Table, WeightFormat, parse_weight, weight_names


def table_format(bits: int, group: int | None = 32) -> WeightFormat:
    """A look-up format of irregular, unsorted values, one short of full where it can be."""
    values = np.random.default_rng(bits).standard_normal((1 << bits) - (bits > 1))
    return WeightFormat(Table(f"lut{bits}:test", bits, tuple(values.tolist())), Scaling(group, "bf16"))


SCALED = [
    "int4:g16:fp32",
    "int4:g48",
    "uint4:g16:bf16",
    "uint3:row",
    "e4m3:row",
    "bf16:g64",
    "nf4:g32:e8m0",
    "int5:g32:e8m0",
]
FORMATS = [*map(parse_weight, [*weight_names(), *SCALED]), *(table_format(bits) for bits in range(1, 9))]


def matrix(
    rows: int, cols: int, density: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Normal weights over several magnitudes, some pruned to zero."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, cols, generator=generator)
    weight *= torch.exp2(torch.randint(-8, 8, (rows, 1), generator=generator))
    return weight.masked_fill(torch.rand(rows, cols, generator=generator) >= density, 0.0).to(dtype)


def assert_same_bytes(one, other):
    assert one.streams.keys() == other.streams.keys()
    for name, array in one.streams.items():
        assert array.dtype == other.streams[name].dtype, name
        assert torch.equal(array.view(torch.uint8), other.streams[name].view(torch.uint8)), name
