"""Keys and values thinned out by magnitude: halves block by block, block floating point token by token.

SparAMX prunes a layer's whole cache once, after the prompt; a cache that grows cannot, and a share of every block or
token is a share of the layer. Of values that are equally small the first are left out.
"""

import torch
from torch import Tensor

from ..formats.kv import BLOCK


def prune_tokens(x: Tensor, percent: int) -> Tensor:
    """x [batch, heads, tokens, channels] with `percent` % of each token's values, over all heads, set to zero."""
    if not percent:
        return x
    batch, heads, tokens, channels = x.shape
    flat = x.transpose(1, 2).reshape(batch, tokens, heads * channels)
    count = heads * channels * percent // 100
    smallest = flat.abs().argsort(dim=-1, stable=True)[..., :count]
    pruned = flat.scatter(-1, smallest, 0.0)
    return pruned.reshape(batch, tokens, heads, channels).transpose(1, 2)


def prune_blocks(x: Tensor, percent: int) -> Tensor:
    """x [batch, heads, tokens, channels] with `percent` % of the values of every full block, over all heads, zero."""
    batch, heads, tokens, channels = x.shape
    blocks = tokens // BLOCK
    count = heads * BLOCK * channels * percent // 100
    if not count or not blocks:
        return x
    full, rest = x[:, :, : blocks * BLOCK], x[:, :, blocks * BLOCK :]
    flat = full.reshape(batch, heads, blocks, BLOCK, channels).transpose(1, 2).flatten(2)
    smallest = flat.abs().argsort(dim=-1, stable=True)[..., :count]
    pruned = flat.scatter(-1, smallest, 0.0).reshape(batch, blocks, heads, BLOCK, channels)
    return torch.cat([pruned.transpose(1, 2).reshape(full.shape), rest], -2)
