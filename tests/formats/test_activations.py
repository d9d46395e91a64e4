"""Formats of activations: what their names mean, how they print, and what is said of the ones that mean nothing."""

import pytest

from tilepress.formats import BFP, Anda, AndaSearch, FormatError, parse_activations, parse_tolerance

MEANINGS = {
    "fp": "fp",
    "int8": "int8",
    "bfp:g64:m8": BFP(64, 8),
    "anda:7,7,6,5": Anda((7, 7, 6, 5)),
    "anda:g32:16,1,13,4": Anda((16, 1, 13, 4), 32),
    "anda:1%": AndaSearch(0.01),
    "anda:0.1%": AndaSearch(0.001),
    "anda:g128:5%": AndaSearch(0.05, 128),
}


@pytest.mark.parametrize(("name", "format"), MEANINGS.items())
def test_names_there_and_back(name, format):
    assert parse_activations(name) == format and str(parse_activations(name)) == name


def test_spellings():
    assert str(parse_activations(" Anda:G64:7, 7,6,5")) == "anda:7,7,6,5"
    assert str(parse_activations("anda:.50%")) == "anda:0.5%"


def test_each_type_has_its_own_format():
    formats = Anda((7, 6, 5, 4)).formats
    assert formats == {"qkv": BFP(64, 7), "o": BFP(64, 6), "u": BFP(64, 5), "d": BFP(64, 4)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("anda", "'anda': Anda's mantissas are four numbers from 1 to 16, for qkv, o, u, d"),
        ("anda:7,7,6", "'anda:7,7,6': Anda's mantissas are four numbers"),
        ("anda:7,7,6,5,4", "Anda's mantissas are four numbers"),
        ("anda:7,7,6,x", "Anda's mantissas are four numbers"),
        ("anda:7,7,6,-5", "Anda's mantissas are four numbers"),
        ("anda:0,7,6,5", "BFP mantissa must be an int from 1 to 16, got 0"),
        ("anda:17,7,6,5", "BFP mantissa must be an int from 1 to 16, got 17"),
        ("anda:g48:7,7,6,5", "groups of Anda's are g16, g32, g64, g128, not 'g48'"),
        ("anda:32:7,7,6,5", "groups of Anda's are g16, g32, g64, g128, not '32'"),
        ("anda:100%", "a tolerance is from 0% to below 100%, not 100%"),
        ("anda:-1%", "a tolerance is a percentage, 1% or 0.1% say, not '-1%'"),
        ("anda:nan%", "a tolerance is a percentage"),
        ("float", "not 'float'; activations that stay as they are are written fp"),
        ("mxfp4", "activations are fp, bf16, int8, bfp:gN:mN, anda:7,7,6,5 or anda:1%, not 'mxfp4'"),
        ("bfp:g60:m8", "did you mean 'bfp:g64:m8'?"),
    ],
)
def test_what_means_nothing(name, message):
    with pytest.raises(FormatError) as error:
        parse_activations(name)
    assert message in str(error.value)


def test_tolerances():
    assert parse_tolerance("1%") == 0.01 and parse_tolerance(" 0.1%") == 0.001
    for text in ("1", "0.01", "%", "1e-2%", "one%"):
        with pytest.raises(FormatError, match="a tolerance is a percentage"):
            parse_tolerance(text)


def test_four_mantissas():
    with pytest.raises(ValueError, match="a mantissa for each of qkv, o, u, d, not 3"):
        Anda((7, 7, 6))
