"""Cases for whole tensors: formats, edges, matrices, and the comparison with the scalar reference."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tilepress.formats import BF16, FLOATS, FP16, NF4, SIGNED, UNSIGNED, Table, reference
from tilepress.formats.tensors import dequantize, quantize, scale_values
from tilepress.formats.weight import SCALE_TYPES, Scaling, WeightFormat

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GROUPS = [16, 32, 48, None]
WIDE = tuple(np.random.default_rng(0).normal(size=256).astype(np.float32).tolist())
TABLES = (
    NF4,
    Table("lut1:one value", 1, (0.5,)),
    Table("lut1:zeros", 1, (0.0, -0.0)),
    Table("lut2:positive", 2, (1.0, 2.0, 4.0)),
    Table("lut2:small", 2, (-0.25, 0.0, 0.1875)),
    Table("lut3:unsorted", 3, (0.75, -2.0, 0.0, 0.75, -0.125)),
    Table("lut8:wide", 8, WIDE),
)
ELEMENTS = (*FLOATS, *SIGNED, *UNSIGNED, *TABLES)
BYTES = [element for element in ELEMENTS if element.bits <= 8]
HALVES = (BF16, FP16)
WITH_NAN = [element for element in FLOATS if element.specials != "none"]
FORMATS = [
    *(WeightFormat(element) for element in (*FLOATS, *TABLES)),
    *(WeightFormat(e, Scaling(group, type)) for e in ELEMENTS for group in GROUPS for type in SCALE_TYPES),
]
SCALE_DTYPES = {"e8m0": torch.uint8, "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

# Where the rules change: signed zeros, ties, subnormals and least normals of each width, the ends of float32.
FLOAT32_MAX = torch.finfo(torch.float32).max
EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.5, 2.5, -3.5, 5.0, 6.0, 7.0, -8.0, 127.5, 448.0, 464.0, -57344.0, 65520.0]
EDGES += [1e-30, -1e-30, 1e30, -1e30, 2.0**-149, -(2.0**-149), 1e-40, 2.0**-126, 2.0**-127, 2.0**-133, 2.0**-24]
EDGES += [FLOAT32_MAX, -FLOAT32_MAX, FLOAT32_MAX / 2, 2.0**127]

on_elements = pytest.mark.parametrize("element", ELEMENTS, ids=str)
on_scale_types = pytest.mark.parametrize("type", SCALE_TYPES)
on_groups = pytest.mark.parametrize("group", GROUPS, ids=lambda group: f"g{group}" if group else "row")

float32s = st.one_of(
    st.sampled_from(EDGES),
    st.floats(-8.0, 8.0, width=32),
    st.integers(-300, 300).map(lambda n: n / 2),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)
formats = st.sampled_from(FORMATS)


def filled(palette: list[float], shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A float32 tensor filled at random from `palette`."""
    choice = torch.Generator().manual_seed(seed)
    return torch.tensor(palette)[torch.randint(len(palette), shape, generator=choice)]


def as_weights(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x` in `dtype`, brought into its range so that it stays finite."""
    limit = torch.finfo(dtype).max
    return x.clamp(-limit, limit).to(dtype)


@st.composite
def matrices(draw):
    """Weights of 1 to 3 neurons, whole groups and ragged ones, some of them all zeros, in any dtype."""
    shape = draw(st.integers(1, 3)), draw(st.sampled_from([1, 15, 16, 17, 32, 47, 50, 64, 97]))
    x = filled(draw(st.lists(float32s, min_size=1, max_size=12)), shape, draw(st.integers(0, 2**16)))
    start = draw(st.integers(0, shape[1]))
    x[0, start : start + 48] = 0
    return as_weights(x, draw(st.sampled_from(DTYPES)))


def edge_matrix(inputs: int = 50) -> torch.Tensor:
    """Float32 rows, each a regime of its own: ordinary, tiny, huge, subnormal, zero, one sign, and all mixed."""
    x = torch.randn(9, inputs, generator=torch.Generator().manual_seed(0))
    x[1] *= 1e-30
    x[2] *= 1e30
    x[3] *= 1e-42
    x[4] = torch.tensor([0.0, -0.0])[torch.arange(inputs) % 2]
    x[5] = x[5].abs()
    x[6] = -x[6].abs()
    x[7] = filled(EDGES, (inputs,), seed=1)
    x[8] = filled([FLOAT32_MAX, -FLOAT32_MAX, 0.0, 1.0], (inputs,), seed=2)
    x[0, :16], x[5, 16:32] = 0, 0
    return x


def bits_of(x: torch.Tensor) -> list:
    """Float32 bit patterns, which tell -0.0 from 0.0."""
    assert x.dtype == torch.float32
    return x.cpu().contiguous().view(torch.int32).tolist()


def float32_bits(values) -> list:
    return np.array(values, np.float32).view(np.int32).tolist()


def unsigned(codes: torch.Tensor, element) -> list:
    """Codes as non-negative integers: int16 patterns and bytes alike."""
    assert codes.dtype == (torch.int16 if element in HALVES else torch.uint8)
    return (codes.cpu().to(torch.int32) & 0xFFFF).tolist()


def reference_weights(row: reference.Row, format: WeightFormat) -> list[float]:
    """(decode(code) - zero) * scale, every operation rounded to float32."""
    size = format.scaling.group_inputs(len(row.codes)) if format.scaling else len(row.codes)
    weights = []
    with np.errstate(over="ignore", under="ignore"):
        for i, code in enumerate(row.codes):
            value = np.float32(format.element.decode(code))
            value = value - np.float32(row.zeros[i // size] * 2.0 ** (format.element.bits - 8)) if row.zeros else value
            weights.append(value * np.float32(row.scales[i // size]) if row.scales else value)
    return weights


def assert_follows_reference(weight: torch.Tensor, format: WeightFormat, device: str, sparse: bool = False) -> None:
    rows = [reference.quantize_row(row, format, sparse=sparse) for row in weight.tolist()]
    got = quantize(weight.to(device), format, sparse=sparse)
    assert unsigned(got.codes, format.element) == [row.codes for row in rows]
    if format.scaling is None:
        assert got.scales is None
    else:
        assert got.scales.dtype == SCALE_DTYPES[format.scaling.type]
        assert bits_of(scale_values(got.scales)) == float32_bits([row.scales for row in rows])
    assert (got.zeros is not None) == format.has_zero_point
    if got.zeros is not None:
        assert got.zeros.dtype == torch.uint8
        assert got.zeros.tolist() == [row.zeros for row in rows]
    assert bits_of(dequantize(got, format)) == float32_bits([reference_weights(row, format) for row in rows])
