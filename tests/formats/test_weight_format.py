"""Weight formats: what a weight costs, which scales there are, and what is refused."""

from dataclasses import FrozenInstanceError

import pytest

from tilepress.formats import (
    BF8,
    BF16,
    E2M1,
    E4M3,
    FLOATS,
    FP16,
    NF4,
    SCALE_TYPES,
    SIGNED,
    UNSIGNED,
    Integer,
    Scaling,
    Table,
    WeightFormat,
    parse_weight,
)
from tilepress.formats.weight import default_scale_type

INT4, INT8, UINT4 = SIGNED[2], SIGNED[6], UNSIGNED[2]
LUT3 = Table("lut3:test", 3, (0.0, 1.0, 2.0))


# What a weight costs


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("fp16", 16),
        ("bf8", 8),
        ("e4m3", 8),
        ("mxfp4", 4.25),  # 4 + 8 / 32
        ("mxfp6", 6.25),
        ("mxfp6-e3m2", 6.25),
        ("mxfp8", 8.25),
        ("mxfp8-e5m2", 8.25),
        ("int4:g32", 4.5),  # 4 + 16 / 32
        ("int4:g32:fp32", 5.0),  # 4 + 32 / 32
        ("int4:g16:e8m0", 4.5),  # 4 + 8 / 16
        ("int3:g128:fp16", 3.125),  # 3 + 16 / 128
        ("uint4:g128", 4.1875),  # 4 + (16 + 8) / 128
        ("uint4:g64:fp32", 4.625),  # 4 + (32 + 8) / 64
        ("uint2:g16:e8m0", 3.0),  # 2 + (8 + 8) / 16
        ("nf4:g64", 4.25),  # 4 + 16 / 64
        ("nf4", 4),
        ("e2m1:g16", 5.0),  # 4 + 16 / 16
        ("int8:row", 8),
        ("uint8:row", 8),
    ],
)
def test_bits_of_a_dense_weight(name, bits):
    format = parse_weight(name)
    assert format.bits_per_weight() == bits
    assert format.compression_factor() == 16 / bits


@pytest.mark.parametrize(
    ("name", "density", "bits"),
    [
        ("bf16", 0.5, 9.0),  # 16 · 0.5 + 1
        ("bf16", 1.0, 17.0),  # a bitmask over all weights only adds to them
        ("bf16", 0.0, 1.0),
        ("bf8", 0.25, 3.0),  # 8 · 0.25 + 1
        ("mxfp4", 0.5, 3.25),  # 4 · 0.5 + 1 + 8 / 32
        ("int4:g32", 0.5, 3.5),  # 4 · 0.5 + 1 + 16 / 32
        ("uint4:g128", 0.25, 2.1875),  # 4 · 0.25 + 1 + (16 + 8) / 128
        ("int8:row", 0.5, 5.0),
        ("nf4", 0.75, 4.0),
    ],
)
def test_bits_of_a_sparse_weight(name, density, bits):
    format = parse_weight(name)
    assert format.bits_per_weight(density) == bits
    assert format.compression_factor(density) == 16 / bits


@pytest.mark.parametrize(
    ("name", "density", "inputs", "bits"),
    [
        ("int8:row", None, 4096, 8 + 32 / 4096),
        ("int8:row:bf16", None, 64, 8.25),
        ("uint8:row", None, 64, 8.625),  # 8 + (32 + 8) / 64
        ("int8:row", 0.5, 64, 5.5),  # 8 · 0.5 + 1 + 32 / 64
        ("int4:g32", None, 64, 4.5),  # inputs matter to a whole-row scale only
        ("bf16", None, 64, 16),
    ],
)
def test_a_row_shares_its_scale_among_its_inputs(name, density, inputs, bits):
    format = parse_weight(name)
    assert format.bits_per_weight(density, inputs) == bits
    assert format.compression_factor(density, inputs) == 16 / bits


@pytest.mark.parametrize("bits", range(1, 9))
def test_a_table_costs_its_codes(bits):
    format = WeightFormat(Table(f"lut{bits}:test", bits, (0.0, 1.0)), Scaling(32, "e8m0"))
    assert format.bits_per_weight() == bits + 0.25


@pytest.mark.parametrize(
    ("name", "bits"),
    [("bf16", 0), ("mxfp4", 8), ("int4:g32", 16), ("int8:row", 32), ("uint4:g128", 24), ("uint8:row:e8m0", 16)],
)
def test_bits_of_a_group(name, bits):
    assert parse_weight(name).group_bits == bits


# What a weight is made of


@pytest.mark.parametrize("element", [*FLOATS, NF4, LUT3], ids=str)
def test_floats_and_tables_are_16_bit_operands(element):
    assert WeightFormat(element).operand_bits == WeightFormat(element, Scaling(32, "bf16")).operand_bits == 16


@pytest.mark.parametrize("element", [*SIGNED, *UNSIGNED], ids=str)
def test_integers_are_8_bit_operands(element):
    assert WeightFormat(element, Scaling(32, "bf16")).operand_bits == 8


@pytest.mark.parametrize("element", [*FLOATS, *SIGNED, *UNSIGNED, NF4, LUT3], ids=str)
def test_only_unsigned_integers_have_a_zero_point(element):
    assert WeightFormat(element, Scaling(32, "bf16")).has_zero_point == (element in UNSIGNED)


@pytest.mark.parametrize("element", [*SIGNED, *UNSIGNED], ids=str)
def test_integers_without_a_scale_are_refused(element):
    name = element.name
    with pytest.raises(ValueError, match=f"^{name} needs a scale: {name}:g32 or {name}:row, say$"):
        WeightFormat(element)


# Scales


@pytest.mark.parametrize(
    ("element", "group", "type"),
    [
        (INT4, 32, "bf16"),
        (INT4, None, "fp32"),
        (UINT4, 128, "fp16"),
        (UINT4, None, "fp32"),
        (NF4, 64, "bf16"),
        (LUT3, 32, "bf16"),
        (LUT3, None, "fp32"),
        (E2M1, 32, "bf16"),
        (BF16, None, "fp32"),
    ],
)
def test_usual_scale_type(element, group, type):
    assert default_scale_type(element, group) == type


@pytest.mark.parametrize("group", [16, 32, 48, 64, 128, 4096, None])
@pytest.mark.parametrize("type", SCALE_TYPES)
def test_any_multiple_of_16_is_a_group(group, type):
    assert (Scaling(group, type).group, Scaling(group, type).type) == (group, type)


@pytest.mark.parametrize("group", [-32, -16, 0, 1, 8, 15, 17, 33, 100])
def test_other_groups_are_refused(group):
    with pytest.raises(ValueError, match=f"^a group is a positive multiple of 16 inputs, not {group}$"):
        Scaling(group, "bf16")


@pytest.mark.parametrize("type", ["bf8", "BF16", "", "float32", None])
def test_other_scale_types_are_refused(type):
    with pytest.raises(ValueError, match=f"^a scale is one of e8m0, bf16, fp16, fp32, not {type!r}$"):
        Scaling(32, type)


@pytest.mark.parametrize(
    ("group", "inputs", "groups", "group_inputs"),
    [(32, 64, 2, 32), (32, 65, 3, 32), (32, 1, 1, 32), (48, 96, 2, 48), (None, 1, 1, 1), (None, 999, 1, 999)],
)
def test_groups_of_a_row(group, inputs, groups, group_inputs):
    scaling = Scaling(group, "bf16")
    assert scaling.groups(inputs) == groups
    assert scaling.group_inputs(inputs) == group_inputs


# Frozen, and equal by what they are


@pytest.mark.parametrize(
    ("instance", "field"),
    [(Scaling(32, "bf16"), "group"), (Scaling(32, "bf16"), "type"), (WeightFormat(BF8), "element")],
)
def test_descriptors_are_frozen(instance, field):
    with pytest.raises(FrozenInstanceError):
        setattr(instance, field, None)


def test_formats_are_equal_by_what_they_are():
    one = WeightFormat(INT4, Scaling(32, "bf16"))
    two = WeightFormat(Integer("int4", 4, True), Scaling(32, "bf16"))
    assert one == two and hash(one) == hash(two) and {one: 1}[two] == 1
    assert one != WeightFormat(INT4, Scaling(32, "fp16"))
    assert one != WeightFormat(INT4, Scaling(None, "bf16"))
    assert one != WeightFormat(INT8, Scaling(32, "bf16"))
    assert len({WeightFormat(BF16), WeightFormat(FP16), WeightFormat(E4M3), WeightFormat(BF16)}) == 3


def test_asking_for_a_property_changes_neither_hash_nor_equality():
    asked, fresh = WeightFormat(BF8, Scaling(32, "e8m0")), WeightFormat(BF8, Scaling(32, "e8m0"))
    assert asked.operand_bits and asked.element.magnitudes
    assert asked == fresh and hash(asked) == hash(fresh)


@pytest.mark.parametrize(
    ("format", "name"),
    [
        (WeightFormat(BF16), "bf16"),
        (WeightFormat(INT4, Scaling(32, "bf16")), "int4:g32"),
        (WeightFormat(INT4, Scaling(32, "fp16")), "int4:g32:fp16"),
        (WeightFormat(INT4, Scaling(32, "e8m0")), "int4:g32:e8m0"),
        (WeightFormat(UINT4, Scaling(128, "fp16")), "uint4:g128"),
        (WeightFormat(INT8, Scaling(None, "fp32")), "int8:row"),
        (WeightFormat(INT8, Scaling(None, "bf16")), "int8:row:bf16"),
        (WeightFormat(E2M1, Scaling(32, "e8m0")), "mxfp4"),
        (WeightFormat(E2M1, Scaling(64, "e8m0")), "e2m1:g64:e8m0"),
        (WeightFormat(LUT3, Scaling(32, "bf16")), "lut3:test:g32"),
    ],
)
def test_format_prints_its_name(format, name):
    assert str(format) == name
