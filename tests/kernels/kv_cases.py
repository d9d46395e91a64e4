"""Queries, keys and values for tests of KV stores, and what attention to them in block floating point is."""

from functools import cache

import torch

from tilepress.formats.kv import parse_kv
from tilepress.kernels import attention_reference as reference

BFP4 = parse_kv("bfp4").bfp

BFP8 = parse_kv("bfp8").bfp


def tensors(tokens, *, batch=1, heads=2, rows=2, channels=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, heads * rows, tokens, channels), (batch, heads, tokens, channels), (batch, heads, tokens, channels)
    queries, keys, values = (torch.randn(size, generator=generator) for size in shape)
    # Values whose exponents grow and shrink, so that groups are rounded anew; and an outlier.
    values *= torch.exp2(torch.randint(-6, 6, (tokens, 1), generator=generator).float())
    keys[..., 5] += 12.0
    return queries, keys, values


def causal_reference(queries, keys, values, format, **options):
    """Every query over the tokens up to its own."""
    out = torch.empty_like(queries)
    rows = queries.shape[1] // keys.shape[1]
    window = options.pop("window", None)
    for b, h in [(b, h) for b in range(len(keys)) for h in range(keys.shape[1])]:
        for t in range(keys.shape[2]):
            first = max(0, t + 1 - window) if window else 0
            mine = slice(h * rows, (h + 1) * rows)
            out[b, mine, t] = reference.attend(
                queries[b, mine, t], keys[b, h, : t + 1], values[b, h, : t + 1], format, 0.125, first=first, **options
            )
    return out


def by_steps(store, queries, keys, values, token_mask=None, sizes=1, **options):
    """Attention to tokens that come in pieces of these sizes."""
    out = []
    for part in torch.arange(keys.shape[2]).split(sizes):
        chosen = None if token_mask is None else token_mask[:, part]
        step = (queries[:, :, part], keys[:, :, part], values[:, :, part])
        out.append(store.attend(*step, 0.125, chosen, **options))
    return torch.cat(out, 2)


@cache
def case(name, tokens, rows=2, channels=64, **options):
    """Tensors of one head and what attention to them is: the same for every instruction set."""
    arrays = tensors(tokens, heads=1, rows=rows, channels=channels)
    format = parse_kv(name)
    return arrays, causal_reference(*arrays, format.bfp, rotated=format.rotated, **options)
