"""What tests of all runners share."""

import torch

from tilepress.engine.batch import Chunk
from tilepress.engine.native import NativeModel
from tilepress.engine.reference import ReferenceModel

PAGE_TOKENS = 16
PAGES = 24
RUNNERS = {"reference": ReferenceModel, "native": NativeModel}


def pages_of(sequence, sequences=1):
    """Pages of one of several sequences: neither in order nor next to each other."""
    return tuple(range(PAGES - 1 - sequence, -1, -sequences))


def chunk(text, start, end, pages, wants_logits=True):
    held = tuple(pages[: -(-end // PAGE_TOKENS)])
    return Chunk(text[start:end], start, held, wants_logits)


def held_by(runner, layer, page):
    """Keys and values of a page [heads, keys and values, page tokens, head_dim]."""
    if isinstance(runner, NativeModel):
        return runner.read_page(layer, page)
    return runner.key_values[layer][page].permute(2, 1, 0, 3)


def all_pages(runner):
    layers = range(len(runner.decoder.blocks))
    return [torch.stack([held_by(runner, layer, page) for page in range(runner.pages)]) for layer in layers]
