"""Names of cache formats, and what they cost."""

import pytest

from tilepress.formats import FormatError
from tilepress.formats.kv import PRESETS, KvBfp, KvFormat, parse_kv


@pytest.mark.parametrize(
    ("name", "canonical", "format"),
    [
        ("fp16", "fp16", KvFormat("fp16")),
        (" BF16 ", "bf16", KvFormat("bf16")),
        ("bfp8", "bfp8", KvFormat(KvBfp(8, 8))),
        ("bfp:m8:g32", "bfp8", KvFormat(KvBfp(8, 8))),
        ("bfp4", "bfp4", KvFormat(KvBfp(4, 8, 32, 64))),
        ("bfp:g32:m4:local64:initial32:hi8", "bfp4", KvFormat(KvBfp(4, 8, 32, 64))),
        ("bfp:m4", "bfp:m4:g32", KvFormat(KvBfp(4, 4))),
        ("bfp:m3:hi6:initial7:local0:g64", "bfp:m3:hi6:initial7:local0:g64", KvFormat(KvBfp(3, 6, 7, 0, 64))),
        ("sparse:k30,v50", "sparse:k30,v50", KvFormat("fp16", 30, 50)),
        ("fp16+sparse:v50", "sparse:k0,v50", KvFormat("fp16", 0, 50)),
        ("sparse:k30,v50+bfp4", "bfp4+sparse:k30,v50", KvFormat(PRESETS["bfp4"], 30, 50)),
        ("bf16+sparse:k1,v2", "bf16+sparse:k1,v2", KvFormat("bf16", 1, 2)),
        ("bfp4n", "bfp4n", KvFormat(KvBfp(4, 8, 32, 64, nearest=True))),
        ("bfp:near:m3:g16", "bfp:m3:near:g16", KvFormat(KvBfp(3, 3, group=16, nearest=True))),
        ("rotate+bfp4n", "bfp4n+rotate", KvFormat(PRESETS["bfp4n"], rotated=True)),
        ("sparse:v9+bfp8+rotate", "bfp8+rotate+sparse:k0,v9", KvFormat(PRESETS["bfp8"], 0, 9, rotated=True)),
    ],
)
def test_names(name, canonical, format):
    assert parse_kv(name) == format
    assert str(format) == canonical
    assert parse_kv(canonical) == format == parse_kv(format)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "'' is not known"),
        ("bfp5", "'bfp5' is not known"),
        ("bfp", "bfp needs mN"),
        ("bfp:m9", "1 to 8 bits"),
        ("bfp:m0", "1 to 8 bits"),
        ("bfp:m4:hi3:local1", "hi not fewer than m"),
        ("bfp:m4:hi8", "hi needs tokens"),
        ("bfp:m4:local64", "they need hi above m"),
        ("bfp:m4:m5", "each once"),
        ("bfp:m4:x5", "'x5' is not one of"),
        ("bfp:m4:g33", "a group is one of"),
        ("bfp:m4:hi8:local99999999", "0 to 1048576 tokens"),
        ("sparse:k100,v0", "0 to 99 %"),
        ("sparse:30", "'30' is not one of kN, vN"),
        ("bfp8+fp16", "two formats of the same kind"),
        ("sparse:k1+sparse:v1", "two formats of the same kind"),
        ("int4", "'int4' is not known; write fp16, bf16"),
        ("bfp:m8:near", "near is of fewer than 8 bits"),
        ("bfp:m3:near:hi6:local9", "near rounds what 8 bits hold: write hi8 with it, not hi6"),
        ("bfp:m4:near:near", "'near' is there twice"),
        ("rotate", "rotate is of keys in block floating point, and fp16 is not: leave it out"),
        ("bf16+rotate", "and bf16 is not"),
        ("bfp4+rotate+rotate", "two formats of the same kind"),
    ],
)
def test_other_names_are_refused(name, why):
    with pytest.raises(FormatError, match="is no cache format") as caught:
        parse_kv(name)
    assert why in str(caught.value)


def test_a_name_is_a_string():
    with pytest.raises(TypeError, match="a cache format is a string, not int"):
        parse_kv(4)


def test_harmonias_compression_at_four_thousand_tokens():
    halves = parse_kv("fp16").bits(4096)
    assert round(halves / parse_kv("bfp4").bits(4096), 2) == 3.05
    assert halves / parse_kv("bfp8").bits(4096) == 16 / (9 + 5 / 32)
    assert parse_kv("sparse:k30,v50").bits(74) == 64 * (16 * 0.7 + 1 + 16 * 0.5 + 1) + 10 * 32  # the last ten are whole
    assert parse_kv("bfp4").bits(50) == 2 * 50 * (9 + 5 / 32)


def test_what_sparsity_saves_of_block_floating_point():
    assert parse_kv("bfp8+sparse:k30,v50").bits(70) == pytest.approx(parse_kv("bfp8").bits(70) - 64 * (9 * 0.8 - 2))
    # The first block and the last 64 tokens have more bits, and all of them.
    thin = parse_kv("bfp4+sparse:k30,v50").bits(4096)
    assert thin == pytest.approx(parse_kv("bfp4").bits(4096) - (4096 - 96) * (5 * 0.8 - 2))
    assert parse_kv("bfp4+sparse:k30,v50").bits(90) == parse_kv("bfp4").bits(90)
