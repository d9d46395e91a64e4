"""Format names: what they mean, how they print, and what is said of the ones that mean nothing."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilepress.formats import (
    BF8,
    BF16,
    BFP,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    FLOATS,
    NF4,
    SCALE_TYPES,
    SIGNED,
    UNSIGNED,
    FormatError,
    Scaling,
    Table,
    WeightFormat,
    parse,
    parse_weight,
    weight_names,
)

ELEMENTS = (*FLOATS, *SIGNED, *UNSIGNED, NF4)
GROUPS = ["g16", "g32", "g48", "g64", "g128", "g1024", "row"]
INT4, INT8, UINT4 = SIGNED[2], SIGNED[6], UNSIGNED[2]
MX = {"e2m1": "mxfp4", "e2m3": "mxfp6", "e3m2": "mxfp6-e3m2", "e4m3": "mxfp8", "bf8": "mxfp8-e5m2"}
VALUES = (-1.0, -0.25, 0.0, 0.5, 2.0)

MEANINGS = {
    "bf16": WeightFormat(BF16),
    "bf8": WeightFormat(BF8),
    "e4m3": WeightFormat(E4M3),
    "mxfp4": WeightFormat(E2M1, Scaling(32, "e8m0")),
    "mxfp6": WeightFormat(E2M3, Scaling(32, "e8m0")),
    "mxfp6-e3m2": WeightFormat(E3M2, Scaling(32, "e8m0")),
    "mxfp8": WeightFormat(E4M3, Scaling(32, "e8m0")),
    "mxfp8-e5m2": WeightFormat(BF8, Scaling(32, "e8m0")),
    "int4:g32": WeightFormat(INT4, Scaling(32, "bf16")),
    "uint4:g128:bf16": WeightFormat(UINT4, Scaling(128, "bf16")),
    "uint4:g128": WeightFormat(UINT4, Scaling(128, "fp16")),
    "int8:row": WeightFormat(INT8, Scaling(None, "fp32")),
    "int8:row:e8m0": WeightFormat(INT8, Scaling(None, "e8m0")),
    "uint4:row": WeightFormat(UINT4, Scaling(None, "fp32")),
    "nf4:g64": WeightFormat(NF4, Scaling(64, "bf16")),
    "nf4": WeightFormat(NF4),
    "e2m1:g16": WeightFormat(E2M1, Scaling(16, "bf16")),
    "e2m1:g16:e8m0": WeightFormat(E2M1, Scaling(16, "e8m0")),
    "bfp:g64:m7": BFP(64, 7),
    "bfp:g32:m8": BFP(32, 8),
}

SYNONYMS = {
    "e5m2": "bf8",
    "e4m3fn": "e4m3",
    "e5m2:g32:fp32": "bf8:g32:fp32",
    "mxfp8-e4m3": "mxfp8",
    "mxfp6-e2m3": "mxfp6",
    "mxfp4-e2m1": "mxfp4",
    "e2m1:g32:e8m0": "mxfp4",
    "e5m2:g32:e8m0": "mxfp8-e5m2",
    "int4:g32:bf16": "int4:g32",
    "uint4:g128:fp16": "uint4:g128",
    "int8:row:fp32": "int8:row",
    "int4:g032": "int4:g32",
    "bfp:m7:g64": "bfp:g64:m7",
    "INT4:G32": "int4:g32",
    "BF16": "bf16",
    "Uint4:g128:BF16": "uint4:g128:bf16",
    "MXFP4": "mxfp4",
    "MXFP6-E3M2": "mxfp6-e3m2",
    "Int8:ROW": "int8:row",
    "NF4:g64": "nf4:g64",
    "BFP:G64:M7": "bfp:g64:m7",
    "E5M2": "bf8",
    "  int4:g32 ": "int4:g32",
    "\tmxfp4\n": "mxfp4",
}


@pytest.fixture
def values_file(tmp_path):
    """The path of a table of five values, in capitals to see that it is not folded."""
    path = tmp_path / "Values.TXT"
    path.write_text(" ".join(map(str, VALUES)))
    return str(path)


# Names that mean something


@pytest.mark.parametrize(("name", "format"), MEANINGS.items())
def test_name_means_and_prints(name, format):
    assert parse(name) == format
    assert str(format) == name


@pytest.mark.parametrize(("name", "canonical"), SYNONYMS.items())
def test_other_spellings_print_canonically(name, canonical):
    assert str(parse(name)) == canonical
    assert parse(name) == parse(canonical)


@pytest.mark.parametrize("name", weight_names())
def test_listed_names_are_canonical(name):
    format = parse(name)
    assert str(format) == name
    assert parse_weight(name) == format and isinstance(format, WeightFormat)


def test_listed_names_show_every_element_once():
    names = weight_names()
    assert len(set(names)) == len(names)
    assert {parse(name).element for name in names} == set(ELEMENTS)
    assert {"mxfp4", "mxfp6", "mxfp6-e3m2", "mxfp8", "mxfp8-e5m2", "int4:g32", "nf4:g64"} <= set(names)


def canonical(element: str, group: str, scale: str) -> str:
    """The shortest name: an MX name where there is one, the scale type left out where it is the usual one."""
    if (group, scale) == ("g32", "e8m0") and element in MX:
        return MX[element]
    usual = "fp32" if group == "row" else "fp16" if element.startswith("uint") else "bf16"
    return f"{element}:{group}" if scale == usual else f"{element}:{group}:{scale}"


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_every_combination_round_trips(element):
    for group, scale in product(GROUPS, SCALE_TYPES):
        format = parse(f"{element.name}:{group}:{scale}")
        assert format == WeightFormat(element, Scaling(None if group == "row" else int(group[1:]), scale))
        assert str(format) == canonical(element.name, group, scale)
        assert parse(str(format)) == format


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_floats_need_no_scale(element):
    assert parse(element.name) == WeightFormat(element)


@pytest.mark.parametrize("group", [16, 32, 64, 128])
def test_every_bfp_round_trips(group):
    for mantissa in range(1, 17):
        assert parse(f"bfp:g{group}:m{mantissa}") == BFP(group, mantissa)
        assert parse(str(BFP(group, mantissa))) == BFP(group, mantissa)


# Tables


@pytest.mark.parametrize(
    ("suffix", "scaling"),
    [
        ("", None),
        (":g32", Scaling(32, "bf16")),
        (":row", Scaling(None, "fp32")),
        (":g48:e8m0", Scaling(48, "e8m0")),
        (":row:fp16", Scaling(None, "fp16")),
    ],
)
@pytest.mark.parametrize("bits", [3, 8])
def test_table_name_reads_its_file(values_file, bits, suffix, scaling):
    name = f"lut{bits}:{values_file}{suffix}"
    format = parse(name)
    assert format == WeightFormat(Table(f"lut{bits}:any", bits, VALUES), scaling)
    assert str(format) == name
    assert parse(str(format)) == format == parse_weight(name)


def test_table_name_folds_case_but_not_its_path(values_file):
    assert str(parse(f" LUT3:{values_file}:G32:BF16 ")) == f"lut3:{values_file}:g32"


@pytest.mark.parametrize("file", ["a:b.txt", "a:g32:b", "row", "bf16", "g32", "a:bf16:x", "C:values"])
@pytest.mark.parametrize(
    ("suffix", "scaling"), [("", None), (":g32", Scaling(32, "bf16")), (":row:fp16", Scaling(None, "fp16"))]
)
def test_table_paths_may_hold_colons(tmp_path, monkeypatch, file, suffix, scaling):
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text("-1 -0.25 0 0.5 2")
    format = parse(f"lut3:{file}{suffix}")
    assert format == WeightFormat(Table("lut3:any", 3, VALUES), scaling)
    assert str(format) == f"lut3:{file}{suffix}"


def test_table_values_given_need_no_file():
    format = parse("lut3:no such file:g32", table=VALUES)
    assert format == WeightFormat(Table("lut3:any", 3, VALUES), Scaling(32, "bf16"))
    assert str(format) == "lut3:no such file:g32"
    assert parse_weight(str(format), table=list(VALUES)) == format


def test_table_values_given_matter_to_tables_only():
    assert parse("int4:g32", table=VALUES) == parse("int4:g32")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lut3", "'lut3' names no file of values; write lut3:FILE or lut3:FILE:g32"),
        ("lut3:", "'lut3:' names no file of values; write lut3:FILE or lut3:FILE:g32"),
        ("lut5::g32", "'lut5::g32' names no file of values; write lut5:FILE or lut5:FILE:g32"),
        ("lut9:x", "unknown format 'lut9:x'; did you mean 'lut8:x'?"),
        ("lut0:x:g32", "unknown format 'lut0:x:g32'; did you mean 'lut8:x:g32'?"),
        ("lut:x", "unknown format 'lut:x'; did you mean 'lut8:x'?"),
        ("lut33:x", "unknown format 'lut33:x'; did you mean 'lut3:x'?"),
    ],
)
def test_table_names_without_a_table_are_refused(name, message):
    with pytest.raises(FormatError, match=f"^{re.escape(message)}$"):
        parse(name)


def test_table_of_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=rf"cannot read the table {tmp_path}/missing: .*No such file"):
        parse(f"lut3:{tmp_path}/missing:g32")


def test_table_of_too_many_values_is_refused(values_file):
    with pytest.raises(ValueError, match=rf"lut2:{values_file}: 2-bit codes reach 1 to 4 values, not 5"):
        parse(f"lut2:{values_file}:g32")


def test_table_with_a_bad_group_is_refused(values_file):
    message = f"a group is a multiple of 16 inputs; did you mean 'lut3:{values_file}:g48'?"
    with pytest.raises(FormatError, match=re.escape(message)):
        parse(f"lut3:{values_file}:g50")


# Names that mean nothing


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("int9:g32", "unknown format 'int9:g32'; did you mean 'int8:g32'?"),
        ("itn4:g32", "unknown format 'itn4:g32'; did you mean 'int4:g32'?"),
        ("uint44:g128:bf16", "unknown format 'uint44:g128:bf16'; did you mean 'uint4:g128:bf16'?"),
        ("e4m4", "unknown format 'e4m4'; did you mean 'e4m3'?"),
        ("nf5:g64", "unknown format 'nf5:g64'; did you mean 'nf4:g64'?"),
        ("b16", "unknown format 'b16'; did you mean 'bf16'?"),
        ("mxpf4", "unknown format 'mxpf4'; did you mean 'mxfp4'?"),
        ("bpf:g32:m8", "unknown format 'bpf:g32:m8'; did you mean 'bfp:g32:m8'?"),
        ("int4", "'int4': int4 needs a scale: int4:g32 or int4:row, say"),
        ("uint8", "'uint8': uint8 needs a scale: uint8:g32 or uint8:row, say"),
        ("int4:32", "'int4:32': a group is gN or row, not '32'; did you mean 'int4:g32'?"),
        ("int4:rwo", "'int4:rwo': a group is gN or row, not 'rwo'; did you mean 'int4:g32'?"),
        ("int4:bf16", "'int4:bf16': a group is gN or row, not 'bf16'; did you mean 'int4:g32'?"),
        ("int4:", "'int4:': a group is gN or row, not ''; did you mean 'int4:g32'?"),
        ("int4:g", "'int4:g': a group is gN or row, not 'g'; did you mean 'int4:g32'?"),
        ("int4:g-32", "'int4:g-32': a group is gN or row, not 'g-32'; did you mean 'int4:g32'?"),
        ("int4:g³²", "'int4:g³²': a group is gN or row, not 'g³²'; did you mean 'int4:g32'?"),
        ("int4:g33", "'int4:g33': a group is a multiple of 16 inputs; did you mean 'int4:g32'?"),
        (
            "int4:g100:fp16",
            "'int4:g100:fp16': a group is a multiple of 16 inputs; did you mean 'int4:g96:fp16'?",
        ),
        ("nf4:g1", "'nf4:g1': a group is a multiple of 16 inputs; did you mean 'nf4:g16'?"),
        ("int4:g0", "'int4:g0': a group is a multiple of 16 inputs; did you mean 'int4:g16'?"),
        (
            "uint4:g128:bf61",
            "'uint4:g128:bf61': a scale is e8m0, bf16, fp16, fp32; did you mean 'uint4:g128:bf16'?",
        ),
        ("int8:row:f32", "'int8:row:f32': a scale is e8m0, bf16, fp16, fp32; did you mean 'int8:row:fp32'?"),
        (
            "int8:g32:e8m1",
            "'int8:g32:e8m1': a scale is e8m0, bf16, fp16, fp32; did you mean 'int8:g32:e8m0'?",
        ),
        ("int4:g32:bf16:extra", "'int4:g32:bf16:extra' has parts to spare; did you mean 'int4:g32:bf16'?"),
        ("mxfp4:g32", "'mxfp4:g32': mxfp4 has its scale in its name; did you mean 'mxfp4'?"),
        ("MXFP8-E4M3:row", "'MXFP8-E4M3:row': mxfp8 has its scale in its name; did you mean 'mxfp8'?"),
        ("bfp", "'bfp': block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?"),
        ("bfp:g32", "'bfp:g32': block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?"),
        ("bfp:32:8", "'bfp:32:8': block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?"),
        ("bfp:g32:g8", "'bfp:g32:g8': block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?"),
        ("bfp:g32:m", "'bfp:g32:m': block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?"),
        (
            "bfp:g32:m8:x",
            "'bfp:g32:m8:x': block floating point is written bfp:gN:mN; did you mean 'bfp:g32:m8'?",
        ),
        ("bfp:g48:m8", "'bfp:g48:m8': BFP group must be one of (16, 32, 64, 128), got 48; did you mean 'bfp:g32:m8'?"),
        ("bfp:g32:m17", "'bfp:g32:m17': BFP mantissa must be an int from 1 to 16, got 17; did you mean 'bfp:g32:m16'?"),
    ],
)
def test_misspelling_is_answered_with_the_nearest_name(name, message):
    with pytest.raises(FormatError, match=f"^{re.escape(message)}$"):
        parse(name)


@pytest.mark.parametrize("name", ["mxfp5", "mxfp7", "mxfp16"])
def test_unknown_mx_is_answered_with_an_mx_name(name):
    with pytest.raises(FormatError, match=rf"^unknown format '{name}'; did you mean 'mxfp[468]'\?$"):
        parse(name)


@pytest.mark.parametrize("name", ["", "  ", "zzz", ":g32"])
def test_name_like_no_other_is_answered_with_the_list(name):
    with pytest.raises(FormatError) as caught:
        parse(name)
    assert str(caught.value) == (f"unknown format {name!r}; weights take {', '.join(weight_names())}, lutN:FILE")


@pytest.mark.parametrize(("name", "type"), [(4, "int"), (None, "NoneType"), (b"int4:g32", "bytes")])
def test_name_that_is_no_string_is_refused(name, type):
    with pytest.raises(TypeError, match=f"^a format name is a string, not {type}$"):
        parse(name)


@pytest.mark.parametrize("name", ["bfp:g64:m7", "BFP:g32:m8", BFP(64, 7)])
def test_weights_refuse_formats_of_activations(name):
    with pytest.raises(FormatError) as caught:
        parse_weight(name)
    assert str(caught.value) == f"{name} is a format of activations; weights take {', '.join(weight_names())}"


def test_parse_weight_passes_formats_through():
    format = MEANINGS["uint4:g128"]
    assert parse_weight(format) is format


def test_format_error_is_a_value_error():
    assert issubclass(FormatError, ValueError)


heads = st.sampled_from(["int4", "uint3", "bf16", "nf4", "mxfp4", "mxfp", "bfp", "lut3", "e5m2", "q4", ""])
parts = st.sampled_from(["g32", "g8", "row", "bf16", "e8m0", "m8", "m0", "fp", "32", "g", "", " ", "²"])


@settings(max_examples=300)
@given(heads, st.lists(parts | st.text("gmrow0123456789²-. ", max_size=4), max_size=4))
def test_any_name_has_a_meaning_or_a_reason(head, options):
    """No other exception escapes, and what a name means is what its canonical spelling means."""
    name = ":".join([head, *options])
    try:
        format = parse(name, table=VALUES)
    except FormatError as error:
        assert repr(name) in str(error)
    else:
        assert parse(str(format), table=VALUES) == format
