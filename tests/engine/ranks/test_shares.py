"""Who has what of a model, and where a rank runs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.engine.families import config, make

from tilepress.engine.family import describe
from tilepress.engine.ranks.places import nodes, places
from tilepress.engine.ranks.shares import bounds, shares_of


def test_even_shares_of_whole_units():
    assert bounds(9, 3) == (0, 3, 6, 9)
    assert bounds(3, 6) == (0, 1, 1, 2, 2, 3, 3)
    assert bounds(100, 3, 16) == (0, 48, 80, 100)


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_every_head_channel_and_token_has_one_rank(ranks):
    decoder = describe(config("llama"))
    shares = shares_of(decoder, ranks)
    needed, heads = [(shares.tokens, decoder.vocab_size)], []
    for own, block in zip(shares.blocks, decoder.blocks, strict=True):
        needed.append((own.channels, block.mlp.intermediate_size))
        heads.append((own.heads, block.attention.num_key_value_heads))
    for given, count in needed + heads:
        assert given[0] == 0 and given[-1] == count and len(given) == ranks + 1 and list(given) == sorted(given)
    assert all(first < end for given, _ in needed for first, end in pairwise(given))
    assert shares.has_heads(0) and [shares.has_heads(rank) for rank in range(ranks)].count(True) == min(ranks, 2)


def test_channels_in_large_units_where_there_are_many():
    decoder = describe(config("llama", intermediate_size=11008))
    assert shares_of(decoder, 3).blocks[0].channels == (0, 3712, 7424, 11008)
    assert shares_of(decoder, 6).blocks[0].channels == (0, 1856, 3712, 5504, 7360, 9216, 11008)


def test_models_that_cannot_be_cut_so():
    decoder = describe(config("llama"))
    with pytest.raises(ValueError, match="there are 1 or more ranks, not 0"):
        shares_of(decoder, 0)
    with pytest.raises(ValueError, match="can be cut in 6 ranks at most, each with 16 channels, not in 7"):
        shares_of(decoder, 7)
    with pytest.raises(ValueError, match="norms the queries of all heads as one vector cannot be cut"):
        shares_of(describe(make("olmo2").config), 2)
    first, *others = decoder.blocks
    one_head = replace(first, attention=replace(first.attention, num_key_value_heads=1))
    uneven = replace(decoder, blocks=(one_head, *others))
    with pytest.raises(ValueError, match="some ranks would have heads in some layers only"):
        shares_of(uneven, 2)


FOUR, TWO = [range(4), range(4, 8), range(8, 12), range(12, 16)], [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    "ranks, own, nodes, expected",
    [
        (2, range(16), FOUR, [[*range(8)], [*range(8, 16)]]),
        (3, range(16), FOUR, [[*range(4)], [*range(4, 8)], [*range(8, 16)]]),
        (4, range(16), FOUR, [[*node] for node in FOUR]),
        (6, range(16), FOUR, [[0, 1, 2, 3], [4, 5], [6, 7], [8, 9, 10, 11], [12, 13], [14, 15]]),
        (2, range(4), TWO, TWO),
        (2, [0, 2], TWO, [[0], [2]]),
        (2, [0, 1, 2], TWO, [[0, 2], [1]]),
        (2, range(3), [], [[0], [1, 2]]),
        (3, range(2), [range(2)], [[0, 1]] * 3),
        (2, range(4), [range(2)], [[0, 1], [2, 3]]),
    ],
)
def test_cpus_of_each_rank(ranks, own, nodes, expected):
    assert places(ranks, own, nodes) == expected


def test_nodes_as_the_system_lists_them(tmp_path):
    for number, cpus in {0: "0-3,8", 1: "4-7\n", 10: "", 2: "9"}.items():
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}/cpulist").write_text(cpus)
    assert nodes(tmp_path) == [[0, 1, 2, 3, 8], [4, 5, 6, 7], [9], []]
    assert nodes(tmp_path / "missing") == []
