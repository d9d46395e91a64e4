import pytest

from tilepress.simulate.layers import TRANSFORMERS, find_transformer
from tilepress.simulate.ranks import BLOCK, cut
from tilepress.tiles.layout import BLOCK_NEURONS


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_one_rank_has_all(name):
    model = find_transformer(name)
    whole = cut(model, 1)
    assert whole.weights == model.weights and whole.sums == 1 + 2 * model.layers
    assert (whole.blocks, whole.hidden, whole.vocabulary) == (model.layers, model.hidden, model.vocabulary)


def dealt(pieces, ranks):
    """Most of any rank where pieces are dealt one by one."""
    hands = [0] * ranks
    for number, piece in enumerate(pieces):
        hands[number % ranks] += piece
    return max(hands)


@pytest.mark.parametrize("name", ["smollm2-135m", "opt-125m", "llama-30b", "llama3.2-3b"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 16])
def test_the_largest_share_counts(name, ranks):
    """Against heads and blocks dealt one by one; SmolLM2 has three heads of keys, so some ranks get none."""
    model = find_transformer(name)
    heads = dealt([2 * model.heads // model.kv_heads + 2] * model.kv_heads, ranks) * model.head_size
    channels, tokens = (dealt(blocks(count), ranks) for count in (model.feed_forward, model.vocabulary))
    matrices = 3 if model.gated else 2
    assert cut(model, ranks).weights == model.hidden * (model.layers * (heads + matrices * channels) + tokens)


def blocks(count):
    return [min(16, count - first) for first in range(0, count, 16)]


def test_even_shares_are_even():
    model = find_transformer("llama3.1-70b")
    assert cut(model, 2).weights == model.weights / 2 and cut(model, 8).weights == model.weights / 8


def test_a_block_is_that_of_packed_weights():
    assert BLOCK == BLOCK_NEURONS


def test_no_ranks():
    with pytest.raises(ValueError, match="1 or more ranks, not 0"):
        cut(find_transformer("opt-125m"), 0)
