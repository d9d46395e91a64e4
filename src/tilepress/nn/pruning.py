"""Keys and values thinned out by magnitude, token by token."""

from torch import Tensor


def prune_tokens(x: Tensor, percent: int) -> Tensor:
    """x [batch, heads, tokens, channels] with `percent` % of each token's values, over all heads, set to zero.

    They are the smallest in magnitude, of equals the first. SparAMX prunes a layer's whole cache once, after the
    prompt; a cache that grows cannot, and a share of every token is a share of the layer.
    """
    if not percent:
        return x
    batch, heads, tokens, channels = x.shape
    flat = x.transpose(1, 2).reshape(batch, tokens, heads * channels)
    count = heads * channels * percent // 100
    smallest = flat.abs().argsort(dim=-1, stable=True)[..., :count]
    pruned = flat.scatter(-1, smallest, 0.0)
    return pruned.reshape(batch, tokens, heads, channels).transpose(1, 2)
