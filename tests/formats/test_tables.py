"""Tables of values: rounding against all values tried, NF4 against its definition, files and what is refused."""

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.formats.element_cases import all_values, brute_force_code, float32s
from tilepress.formats import NF4, Table, read_table

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


@settings(max_examples=300)
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
