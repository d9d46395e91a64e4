"""Keys and values pruned by magnitude, a share of every token's.

SparAMX prunes a layer's whole cache once, after the prompt; a cache that grows cannot. A share of every block of tokens
would be nearer to it, but takes most from tokens whose values are all small, the first of a text among them, to which
much attention goes. Of values that are equally small the first are left out.
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
    """The same of tokens in full blocks; those after them have all."""
    full = x.shape[-2] // BLOCK * BLOCK
    return torch.cat([prune_tokens(x[:, :, :full], percent), x[:, :, full:]], -2)
