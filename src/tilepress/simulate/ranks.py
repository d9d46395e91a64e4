"""A decoder of the layer table, cut for ranks as `tilepress generate --ranks` cuts it."""

from ..roofsurface import Cut
from .layers import Transformer

BLOCK = 16  # channels and tokens that stay on one rank: a block of packed neurons, `tiles.layout.BLOCK_NEURONS`


def cut(model: Transformer, ranks: int) -> Cut:
    """In heads of keys and values with their queries', channels of the feed-forward network, and tokens of the head.
    Ranks wait for each other after each of these, so each counts at its largest."""
    if ranks < 1:
        raise ValueError(f"a model is cut for 1 or more ranks, not {ranks}")
    heads = _largest(model.kv_heads, ranks) * (1 + model.heads // model.kv_heads)
    attention = 2 * model.hidden * model.head_size * heads
    feed_forward = (3 if model.gated else 2) * model.hidden * _largest(model.feed_forward, ranks, BLOCK)
    head = model.hidden * _largest(model.vocabulary, ranks, BLOCK)
    weights = model.layers * (attention + feed_forward) + head
    return Cut(ranks, weights, model.layers, model.hidden, model.vocabulary)


def _largest(count: int, ranks: int, unit: int = 1) -> int:
    """Share of `count`, in whole units where it has as many."""
    units = -(-count // unit)
    return min(count, -(-units // ranks) * unit)
