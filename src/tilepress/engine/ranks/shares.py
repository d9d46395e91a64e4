"""Which rank has what of a model: heads, channels between feed-forward layers, and tokens."""

from dataclasses import dataclass
from itertools import pairwise

from ..decoder import Block, Decoder

UNIT = 16  # channels and tokens that stay together: a block of packed neurons
UNITS = (128, 64, 32, UNIT)  # so many where that leaves each rank a good number of them
MANY = 16

Bounds = tuple[int, ...]  # the first of each rank, and how many there are


@dataclass(frozen=True)
class BlockShares:
    """Heads of keys and values, each with the heads of queries that it serves, and channels."""

    heads: Bounds
    channels: Bounds


@dataclass(frozen=True)
class Shares:
    tokens: Bounds
    blocks: tuple[BlockShares, ...]

    def has_heads(self, rank: int) -> bool:
        return any(block.heads[rank] < block.heads[rank + 1] for block in self.blocks)


def shares_of(decoder: Decoder, ranks: int) -> Shares:
    """Even ones, as far as heads and blocks of packed neurons allow. With more ranks than heads of keys and values,
    some have none. ValueError if the model cannot be cut so."""
    if ranks < 1:
        raise ValueError(f"there are 1 or more ranks, not {ranks}")
    if any(block.attention.qk_norm == "projection" for block in decoder.blocks):
        raise ValueError("a model that norms the queries of all heads as one vector cannot be cut in ranks")
    most = min(-(-count // UNIT) for count in (decoder.vocab_size, *map(_channels, decoder.blocks)))
    if ranks > most:
        raise ValueError(f"this model can be cut in {most} ranks at most, each with {UNIT} channels, not in {ranks}")
    blocks = tuple(_block_shares(block, ranks) for block in decoder.blocks)
    if any(_who_has(block.heads) != _who_has(blocks[0].heads) for block in blocks):
        raise ValueError("some ranks would have heads in some layers only: use fewer ranks")
    return Shares(bounds(decoder.vocab_size, ranks, UNIT), blocks)


def bounds(count: int, ranks: int, unit: int = 1) -> Bounds:
    """Of as many whole units for each rank as for the others, or one less."""
    units = -(-count // unit)
    return tuple(min(count, -(-units * rank // ranks) * unit) for rank in range(ranks + 1))


def _who_has(heads: Bounds) -> list[bool]:
    """Which ranks have some."""
    return [first < end for first, end in pairwise(heads)]


def _channels(block: Block) -> int:
    return block.mlp.intermediate_size


def _block_shares(block: Block, ranks: int) -> BlockShares:
    unit = next((unit for unit in UNITS if _channels(block) >= MANY * ranks * unit), UNIT)
    return BlockShares(bounds(block.attention.num_key_value_heads, ranks), bounds(_channels(block), ranks, unit))
