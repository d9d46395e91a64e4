"""Element formats: every code against ml_dtypes and torch, rounding against arithmetic done another way."""

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilepress.formats import (
    BF8,
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    FLOATS,
    FP16,
    NF4,
    SIGNED,
    UNSIGNED,
    Float,
    Integer,
    Table,
    read_table,
)
from tilepress.formats.nearest import float32_thresholds, nearest_rank

ML_DTYPES = {
    BF16: "bfloat16",
    BF8: "float8_e5m2",
    E4M3: "float8_e4m3fn",
    E3M2: "float6_e3m2fn",
    E2M3: "float6_e2m3fn",
    E2M1: "float4_e2m1fn",
}
TORCH_DTYPES = {
    BF16: torch.bfloat16,
    FP16: torch.float16,
    BF8: torch.float8_e5m2,
    E4M3: torch.float8_e4m3fn,
}
# Stated apart from the sources, from OCP's and IEEE's tables: largest value, least normal, least subnormal.
LIMITS = {
    BF16: ((2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-133),
    FP16: (65504.0, 2.0**-14, 2.0**-24),
    BF8: (57344.0, 2.0**-14, 2.0**-16),
    E4M3: (448.0, 2.0**-6, 2.0**-9),
    E3M2: (28.0, 0.25, 0.0625),
    E2M3: (7.5, 1.0, 0.125),
    E2M1: (6.0, 1.0, 0.5),
}
INTEGERS = (*SIGNED, *UNSIGNED)
WITH_NAN = [element for element in FLOATS if element.specials != "none"]
WITHOUT_NAN = [*(element for element in FLOATS if element.specials == "none"), *INTEGERS, NF4]

on_floats = pytest.mark.parametrize("element", FLOATS, ids=str)
on_integers = pytest.mark.parametrize("element", INTEGERS, ids=str)

float32s = st.floats(allow_nan=False, allow_infinity=False, width=32)
distinct = st.lists(float32s, min_size=1, max_size=24).map(lambda values: sorted({v + 0.0 for v in values}))


def numpy_dtype(element: Float) -> np.dtype:
    """The dtype of numpy or ml_dtypes that is the outside word on a float format."""
    if element is FP16:
        return np.dtype(np.float16)
    return np.dtype(getattr(pytest.importorskip("ml_dtypes"), ML_DTYPES[element]))


def code_dtype(element: Float) -> type:
    return np.uint16 if element.bits == 16 else np.uint8


def numpy_values(element: Float) -> np.ndarray:
    """The outside word on every code, as float32."""
    codes = np.arange(element.codes).astype(code_dtype(element))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return codes.view(numpy_dtype(element)).astype(np.float32)


def finite_magnitudes(element: Float) -> np.ndarray:
    """The outside word's non-negative finite values, float32, ascending."""
    values = numpy_values(element)[: element.codes // 2]
    return values[np.isfinite(values)]


def rounding_cases(element: Float) -> np.ndarray:
    """Float32s up to the largest value, of both signs: all values, midpoints, and the float32s beside those.

    Of the 16-bit formats a seventh of the values, and all that are near an end.
    """
    values = finite_magnitudes(element)
    lower, upper = values[:-1], values[1:]
    if element.bits == 16:
        keep = np.unique(np.r_[0:300, 0 : len(lower) : 7, len(lower) - 300 : len(lower)])
        lower, upper = lower[keep], upper[keep]
    middles = lower + (upper - lower) / 2
    assert ((middles.astype(np.float64) * 2) == lower.astype(np.float64) + upper).all()
    below, above = np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))
    cases = np.concatenate([lower, upper, middles, below, above])
    return np.concatenate([cases, -cases])


def random_cases(element: Float, count: int = 2000) -> np.ndarray:
    """Float32s within the format's range: even over values, over exponents, and among its subnormals."""
    rng = np.random.default_rng(element.bits)
    largest, _, least = LIMITS[element]
    even = rng.uniform(-1, 1, count) * largest
    scaled = rng.choice([-1, 1], count) * 2 ** rng.uniform(math.log2(least) - 4, math.log2(largest), count)
    small = rng.uniform(-8, 8, count) * least
    cases = np.concatenate([even, scaled, small, [0.0, -0.0, 2.0**-149, -(2.0**-149)]])
    return np.clip(cases, -largest, largest).astype(np.float32)


def same_value(a: float, b: float) -> bool:
    """Equal, with -0.0 distinct from 0.0 and every NaN alike."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def all_values(element) -> list[float]:
    return [element.decode(code) for code in range(element.codes)]


# Floats: decoding


@on_floats
def test_every_float_code_decodes_as_numpy_does(element):
    assert all(map(same_value, all_values(element), numpy_values(element).tolist()))


@pytest.mark.parametrize("element", TORCH_DTYPES, ids=str)
def test_every_float_code_decodes_as_torch_does(element):
    codes = torch.from_numpy(np.arange(element.codes).astype(code_dtype(element)))
    expected = codes.view(TORCH_DTYPES[element]).to(torch.float64)
    assert all(map(same_value, all_values(element), expected.tolist()))


@on_floats
def test_float_limits(element):
    largest, least_normal, least = LIMITS[element]
    assert element.max == largest
    assert element.emax == math.floor(math.log2(largest))
    assert element.magnitudes[:2] == (0.0, least)
    assert element.magnitudes[1 << element.mantissa_bits] == least_normal


@pytest.mark.parametrize(
    ("element", "bits"),
    [(BF16, 16), (FP16, 16), (BF8, 8), (E4M3, 8), (E3M2, 6), (E2M3, 6), (E2M1, 4)],
    ids=str,
)
def test_float_widths(element, bits):
    assert element.bits == bits and element.codes == 2**bits and element.operand_bits == 16
    assert element.bits == 1 + element.exponent_bits + element.mantissa_bits


# Floats: encoding


@on_floats
@pytest.mark.parametrize("cases", [rounding_cases, random_cases], ids=["values and ties", "random"])
def test_float_encodes_as_the_numpy_cast(element, cases):
    x = cases(element)
    expected = x.astype(numpy_dtype(element)).view(code_dtype(element)).tolist()
    got = [element.encode(value) for value in x.tolist()]
    assert got == expected


@pytest.mark.parametrize("element", TORCH_DTYPES, ids=str)
def test_float_encodes_as_the_torch_cast(element):
    x = torch.from_numpy(random_cases(element))
    expected = x.to(TORCH_DTYPES[element]).view(torch.int16 if element.bits == 16 else torch.uint8)
    assert [element.encode(value) for value in x.tolist()] == [c % element.codes for c in expected.tolist()]


@on_floats
def test_float_codes_survive_a_round_trip(element):
    codes = range(0, element.codes, 1 if element.bits < 16 else 11)
    finite = [code for code in codes if math.isfinite(element.decode(code))]
    assert [element.encode(element.decode(code)) for code in finite] == finite


@pytest.mark.parametrize(
    ("x", "code"),
    [
        (0.25, 0b0000),  # half of 0 and 0.5: to the even code
        (0.75, 0b0010),  # half of 0.5 and 1
        (1.25, 0b0010),  # half of 1 and 1.5
        (2.5, 0b0100),  # half of 2 and 3
        (5.0, 0b0110),  # half of 4 and 6
        (5.000001, 0b0111),
        (-0.2, 0b1000),
        (-5.5, 0b1111),
    ],
)
def test_e2m1_by_hand(x, code):
    assert E2M1.encode(x) == code


@on_floats
@pytest.mark.parametrize("beyond", [1.0001, 1.5, 2.0, math.inf])
def test_float_saturates_beyond_its_range(element, beyond):
    assert element.decode(element.encode(element.max * beyond)) == element.max
    assert element.decode(element.encode(-element.max * beyond)) == -element.max


@on_floats
def test_float_keeps_the_sign_of_zero(element):
    assert element.encode(0.0) == 0
    assert element.encode(-0.0) == element.encode(-1e-300) == element.codes // 2


# NaN


@pytest.mark.parametrize(("element", "code"), [(BF16, 0x7FC0), (FP16, 0x7E00), (BF8, 0x7E), (E4M3, 0x7F)], ids=str)
def test_nan_encodes_as_the_quiet_nan_of_its_sign(element, code):
    assert element.encode(math.nan) == code
    assert element.encode(math.copysign(math.nan, -1)) == code + element.codes // 2
    assert math.isnan(element.decode(code)) and math.isnan(element.decode(code + element.codes // 2))


@pytest.mark.parametrize("element", WITH_NAN, ids=str)
def test_nan_encodes_as_the_numpy_cast(element):
    nan = np.array([math.nan], np.float32).astype(numpy_dtype(element)).view(code_dtype(element))
    assert element.encode(math.nan) % (element.codes // 2) == int(nan[0]) % (element.codes // 2)


@pytest.mark.parametrize("element", WITHOUT_NAN, ids=str)
def test_nan_is_refused_where_there_is_none(element):
    with pytest.raises(ValueError, match=f"^{element.name} has no NaN to encode$"):
        element.encode(math.nan)


# Integers


@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4"])
def test_every_small_integer_code_decodes_as_ml_dtypes(name):
    element = next(element for element in INTEGERS if element.name == name)
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    values = np.arange(element.low, element.high + 1)
    codes = values.astype(dtype).view(np.uint8) & (element.codes - 1)
    assert [element.decode(int(code)) for code in codes] == values.tolist()
    assert [element.encode(float(value)) for value in values] == codes.tolist()


@pytest.mark.parametrize(("name", "dtype"), [("int8", np.int8), ("uint8", np.uint8)])
def test_every_byte_decodes_as_numpy_does(name, dtype):
    element = next(element for element in INTEGERS if element.name == name)
    codes = np.arange(256).astype(np.uint8)
    assert all_values(element) == codes.view(dtype).tolist()


@pytest.mark.parametrize("bits", range(2, 9))
def test_integer_ranges(bits):
    signed, unsigned = SIGNED[bits - 2], UNSIGNED[bits - 2]
    assert (str(signed), str(unsigned)) == (f"int{bits}", f"uint{bits}")
    assert (signed.low, signed.high) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    assert (unsigned.low, unsigned.high) == (0, 2**bits - 1)
    assert signed.max == 2 ** (bits - 1) - 1 and unsigned.max == 2**bits - 1
    assert signed.emax == bits - 2 and unsigned.emax == bits - 1
    assert signed.operand_bits == unsigned.operand_bits == 8


@on_integers
def test_integer_codes_survive_a_round_trip(element):
    assert sorted(all_values(element)) == list(range(element.low, element.high + 1))
    assert [element.encode(value) for value in all_values(element)] == list(range(element.codes))


@on_integers
def test_integer_rounds_ties_to_even(element):
    x = np.arange(element.low, element.high, 0.5)
    x = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf), [-0.0]])
    expected = np.clip(np.rint(x), element.low, element.high)
    assert [element.decode(element.encode(float(v))) for v in x] == expected.tolist()


@on_integers
@pytest.mark.parametrize("beyond", [0.4, 0.5, 1.0, 1e9, math.inf])
def test_integer_saturates_beyond_its_range(element, beyond):
    assert element.decode(element.encode(element.high + beyond)) == element.high
    assert element.decode(element.encode(element.low - beyond)) == element.low


# Every element


@pytest.mark.parametrize("element", [*FLOATS, *INTEGERS, NF4], ids=str)
def test_codes_out_of_range_are_refused(element):
    for code in (-1, element.codes, element.codes + 5):
        with pytest.raises(ValueError, match=f"^{element.name} has codes 0 to {element.codes - 1}, not {code}$"):
            element.decode(code)


@pytest.mark.parametrize("element", [BF8, SIGNED[2], NF4], ids=str)
def test_elements_are_frozen_and_hashable(element):
    with pytest.raises(FrozenInstanceError):
        element.bits = 3
    assert len({element, element}) == 1 and element in {element}


def test_elements_are_equal_by_what_they_are():
    assert Integer("int4", 4, True) == SIGNED[2] and hash(Integer("int4", 4, True)) == hash(SIGNED[2])
    assert Integer("int4", 4, True) != Integer("int4", 4, False)
    assert Float("bf8", 8, 5, 2, "ieee") == BF8 != E4M3


# NF4


def test_nf4_has_sixteen_ascending_values_an_exact_zero_and_unit_ends():
    values = list(NF4.values)
    assert len(values) == 16 and NF4.bits == 4
    assert values == sorted(set(values))
    assert values[0] == -1 and values[7] == 0 and values[15] == 1 == NF4.max
    assert sum(value < 0 for value in values) == 7
    assert values == np.array(values, np.float32).tolist()


def test_nf4_values_are_quantiles_of_the_normal_distribution():
    """As QLoRA makes them: of even probabilities from the offset to a half, 8 above zero and 7 below."""

    def quantiles(count):
        return [NormalDist().inv_cdf(p) for p in np.linspace(0.9677083, 0.5, count + 1)[:-1].tolist()]

    values = sorted([*quantiles(8), 0.0, *(-q for q in quantiles(7))])
    assert NF4.values == pytest.approx([value / values[-1] for value in values], abs=1e-6)


# Tables


def table(values, bits: int = 8) -> Table:
    return Table(f"lut{bits}:test", bits, tuple(values))


def brute_force_code(values, x: float) -> int:
    """The nearest of all values; of two as near the one of even rank among the distinct; its first code."""
    ranks = sorted(set(values))
    if math.isinf(x):
        return values.index(ranks[-1] if x > 0 else ranks[0])
    distances = [abs(Fraction(value) - Fraction(x)) for value in ranks]
    nearest = [rank for rank, distance in enumerate(distances) if distance == min(distances)]
    if len(nearest) == 2:
        nearest = [rank for rank in nearest if rank % 2 == 0]
    (rank,) = nearest
    return values.index(ranks[rank])


@st.composite
def tables_and_points(draw):
    """Values of a table in any order, some repeated, and points that include halves of neighbours."""
    values = draw(st.lists(st.one_of(float32s, st.integers(-9, 9).map(float)), min_size=1, max_size=20))
    values += draw(st.lists(st.sampled_from(values), max_size=4))
    values = draw(st.permutations(values))
    ranks = sorted(values)
    middles = [a / 2 + b / 2 for a, b in pairwise(ranks)]
    points = draw(st.lists(st.floats(allow_nan=False), max_size=5))
    return values, [*points, *middles, *values]


@settings(deadline=None, max_examples=300)
@given(tables_and_points())
@example(([0.0, 1.0, 2.0], [0.5, 1.5]))
@example(([2.0, 2.0, -0.0, 0.0], [-0.0, 1.0, math.inf, -math.inf]))
def test_table_encodes_the_nearest_of_all_values(case):
    values, points = case
    made = table(values)
    assert [made.encode(x) for x in points] == [brute_force_code(values, x) for x in points]


def test_table_ties_go_to_the_even_rank_among_distinct_values():
    made = table([4.0, 0.0, 2.0, 2.0, 6.0], bits=3)
    assert [made.decode(made.encode(x)) for x in (1.0, 3.0, 5.0)] == [0.0, 4.0, 4.0]
    assert [made.encode(x) for x in (0.0, 2.0, 4.0, 6.0)] == [1, 2, 0, 4]


def test_equal_values_encode_as_their_lowest_code():
    made = table([3.0, 1.0, 1.0, 3.0], bits=2)
    assert made.encode(1.0) == 1 and made.encode(3.0) == 0
    assert table([-0.0, 0.0]).encode(0.0) == 0 == table([0.0, -0.0]).encode(-0.0)


def test_codes_past_the_end_stand_for_the_last_value():
    made = table([-1.0, 5.0, 2.0], bits=3)
    assert all_values(made) == [-1.0, 5.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert {made.encode(x) for x in np.linspace(-9, 9, 100).tolist()} == {0, 1, 2}


def test_table_of_one_value():
    made = table([0.5], bits=1)
    assert all_values(made) == [0.5, 0.5]
    assert [made.encode(x) for x in (-math.inf, -3.0, 0.5, 1e300, math.inf)] == [0] * 5


@pytest.mark.parametrize("bits", range(1, 9))
def test_tables_of_every_width(bits):
    values = np.random.default_rng(bits).permutation(np.arange(2**bits) - 3.5).tolist()
    made = table(values, bits)
    assert all_values(made) == values and made.codes == 2**bits
    assert [made.encode(value) for value in values] == list(range(2**bits))
    assert made.max == max(map(abs, values)) and made.operand_bits == 16


def test_largest_magnitude_of_a_table():
    assert table([-8.0, 7.0]).max == 8.0
    assert table([-0.3125, 0.25]).max == 0.3125 and table([-0.3125, 0.25]).emax == -2
    assert table([0.0, -0.0]).max == 1.0


def test_table_values_are_rounded_to_float32():
    made = table([0.1, 1e-50, 1 + 2**-24])
    assert made.values == (float(np.float32(0.1)), 0.0, 1.0)


def test_tables_are_equal_by_bits_and_values_not_by_name():
    one, two = Table("lut3:one", 3, (1.0, 2.0)), Table("lut3:two", 3, (1.0, 2.0))
    assert one == two and hash(one) == hash(two)
    assert str(one) == "lut3:one"
    assert one != Table("lut3:one", 3, (2.0, 1.0)) and one != Table("lut2:one", 2, (1.0, 2.0))


@pytest.mark.parametrize("bits", [0, 9, -1, 16])
def test_table_of_other_widths_is_refused(bits):
    with pytest.raises(ValueError, match=f"^a table has codes of 1 to 8 bits, not {bits}$"):
        Table(f"lut{bits}:test", bits, (0.0,))


@pytest.mark.parametrize("name", ["weights", "lut4:weights", "lut3", ""])
def test_table_by_another_name_is_refused(name):
    with pytest.raises(ValueError, match=f"^a table of 3-bit codes is called lut3:LABEL, not {name}$"):
        Table(name, 3, (0.0,))


@pytest.mark.parametrize(("bits", "count"), [(1, 3), (3, 9), (8, 257), (4, 0)])
def test_table_of_too_many_or_no_values_is_refused(bits, count):
    message = f"^lut{bits}:test: {bits}-bit codes reach 1 to {2**bits} values, not {count}$"
    with pytest.raises(ValueError, match=message):
        table([0.0] * count, bits)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_table_of_nonfinite_values_is_refused(value):
    with pytest.raises(ValueError, match=r"^lut8:test: a table's values must be finite$"):
        table([0.0, value])


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_table_beyond_float32_is_refused(value):
    with pytest.raises(ValueError, match=r"^a table's values must fit float32$"):
        table([0.0, value])


@pytest.mark.parametrize("x", [math.nan, -math.nan])
def test_table_has_no_nan(x):
    with pytest.raises(ValueError, match=r"^lut8:test has no NaN to encode$"):
        table([0.0]).encode(x)


# Tables in files


@pytest.mark.parametrize(
    "text",
    [
        "-1 -0.5 0 2e-1",
        "-1,-0.5,0,.2\n",
        "# the values\n-1\n-0.5 # a half\n\n0\t, 0.2,\n#1 2 3",
        "-1.0\r\n-5e-1\r\n+0.0\r\n0.2\r\n",
    ],
)
def test_table_file(tmp_path, text):
    path = tmp_path / "values.txt"
    path.write_text(text, newline="")
    read = read_table(path, 2)
    assert read == table([-1.0, -0.5, 0.0, 0.2], bits=2)
    assert read.name == str(read) == f"lut2:{path}"
    assert read_table(str(path), 2) == read


@pytest.mark.parametrize("word", ["one", "1.0.0", "0x10", "1;2", "--1"])
def test_table_file_with_a_bad_word_is_refused(tmp_path, word):
    path = tmp_path / "bad.txt"
    path.write_text(f"0 1\n{word} 2\n")
    with pytest.raises(ValueError, match=rf"^the table {path} must hold only numbers: line 2 has something else$"):
        read_table(path, 3)


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", " ,\n, "])
def test_table_file_without_values_is_refused(tmp_path, text):
    path = tmp_path / "empty.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"3-bit codes reach 1 to 8 values, not 0$"):
        read_table(path, 3)


def test_table_file_with_too_many_values_is_refused(tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("1 2 3 4 5")
    with pytest.raises(ValueError, match=rf"^lut2:{path}: 2-bit codes reach 1 to 4 values, not 5$"):
        read_table(path, 2)


def test_missing_table_file_is_refused(tmp_path):
    path = tmp_path / "missing.txt"
    with pytest.raises(ValueError, match=rf"^cannot read the table {path}: .*No such file"):
        read_table(path, 3)


def test_directory_as_table_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=rf"^cannot read the table {tmp_path}: "):
        read_table(tmp_path, 3)


def test_binary_table_file_is_refused(tmp_path):
    path = tmp_path / "values.bin"
    path.write_bytes(bytes([0xFF, 0xFE, 0x00, 0x80]))
    with pytest.raises(ValueError, match=rf"^cannot read the table {path}: it is not text in UTF-8"):
        read_table(path, 3)


# Rounding to the nearest of a list


@settings(deadline=None, max_examples=200)
@given(distinct, st.floats(allow_nan=False))
def test_nearest_rank_is_nearest(values, x):
    assert nearest_rank(values, x) == brute_force_code(values, x)


@pytest.mark.parametrize(("x", "rank"), [(0.5, 0), (1.5, 2), (2.5, 2), (-9.0, 0), (9.0, 3), (1.4, 1)])
def test_nearest_rank_by_hand(x, rank):
    assert nearest_rank([0.0, 1.0, 2.0, 3.0], x) == rank


def float32_neighbours(x: float) -> list[float]:
    """`x` and the float32s just below and above it."""
    x = np.float32(x)
    with np.errstate(over="ignore", under="ignore"):
        return [
            float(np.nextafter(x, np.float32(-np.inf))),
            float(x),
            float(np.nextafter(x, np.float32(np.inf))),
        ]


@settings(deadline=None, max_examples=200)
@given(distinct, st.lists(float32s, max_size=8))
@example([-(2.0**-149), 0.0, 2.0**-149, 2.0**-148], [0.0, -0.0])
@example([-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max)], [])
@example([0.0, 1.0, 2.0, 3.0], [0.5, 1.5, 2.5])
def test_thresholds_count_the_rank(values, points):
    thresholds = float32_thresholds(values)
    assert len(thresholds) == len(values) - 1
    assert thresholds == tuple(np.array(thresholds, np.float32).tolist())
    for x in [*points, *(near for threshold in thresholds for near in float32_neighbours(threshold))]:
        assert sum(threshold <= x for threshold in thresholds) == nearest_rank(values, x)


@pytest.mark.parametrize("element", [BF8, E4M3, E3M2, E2M3, E2M1], ids=str)
def test_thresholds_of_floats_count_the_code(element):
    thresholds = np.array(float32_thresholds(element.magnitudes), np.float32)
    x = np.abs(np.concatenate([rounding_cases(element), random_cases(element)]))
    expected = x.astype(numpy_dtype(element)).view(np.uint8)
    assert np.searchsorted(thresholds, x, side="right").tolist() == expected.tolist()
