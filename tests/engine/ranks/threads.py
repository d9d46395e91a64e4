"""Ranks as threads of one process, and ranks computed plainly."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from tilepress import _native
from tilepress.engine.batch import Chunk
from tilepress.engine.family import describe
from tilepress.engine.ranks.cut import part_decoder
from tilepress.engine.ranks.group import Whole
from tilepress.engine.ranks.messages import Cache, Setup, runner_of
from tilepress.engine.ranks.shares import shares_of
from tilepress.engine.reference_block import ReferenceAttention, Step, _feed_forward, part, rms_norm

PAGE = 4096


def exchanges(ranks, patience=math.inf):
    """One for each rank, on the same memory. patience: of rank 0."""
    size = _native.Exchange.bytes(ranks)
    memory = np.zeros(size + PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE
    waits = [patience] + [math.inf] * (ranks - 1)
    return [_native.Exchange(memory[start : start + size], rank, [-1] * ranks, waits[rank]) for rank in range(ranks)]


def whole_of(model, ranks):
    decoder = describe(model.config)
    return Whole(model, decoder, shares_of(decoder, ranks))


def part_of(whole, rank):
    model = whole.ends(rank)
    model.body.layers.extend(whole.layers(rank))
    return model


class Threads:
    """Ranks with a thread each; calls are made of all runners."""

    def __init__(self, model, ranks, kv="float32", pages=24, longest=128, smoothing="none"):
        whole = whole_of(model, ranks)
        cache = Cache(kv=kv, smoothing=smoothing, pages=pages, page_tokens=32, longest=longest)
        self.runners = []
        for rank, exchange in enumerate(exchanges(ranks)):
            decoder = part_decoder(whole.decoder, whole.shares, rank)
            setup = Setup(rank, decoder, whole.shares, cache, threads=1, isa="", cpus=None)
            self.runners.append(runner_of(setup, part_of(whole, rank), exchange))

    def run(self, chunks):
        with ThreadPoolExecutor(len(self.runners)) as threads:
            logits, *others = threads.map(lambda runner: runner.run(chunks), self.runners)
        assert all(one.shape == (len(logits), 0) for one in others)
        return logits

    def copy_page(self, source, target):
        for runner in self.runners:
            runner.copy_page(source, target)


class PlainRanks:
    """Each layer's parts by plain torch, and their sums in the ranks' order."""

    def __init__(self, model, ranks):
        self.whole = whole_of(model, ranks)
        self.decoder, self.ranks = self.whole.decoder, range(ranks)
        self.parts = [part_of(self.whole, rank) for rank in self.ranks]
        self.decoders = [part_decoder(self.decoder, self.whole.shares, rank) for rank in self.ranks]

    @torch.no_grad()
    def logits(self, tokens, page_tokens=16):
        """Of all tokens [tokens, vocabulary]."""
        pages = tuple(range(math.ceil(len(tokens) / page_tokens)))
        step = Step([Chunk(tokens, 0, pages, len(tokens))], page_tokens)
        model, norm = self.whole.model, self.decoder.norm
        x = model.get_input_embeddings()(torch.tensor(tokens)) * self.decoder.embedding_multiplier
        for layer, block in enumerate(self.decoder.blocks):
            modules = [one.body.layers[layer] for one in self.parts]
            blocks = [one.blocks[layer] for one in self.decoders]

            def normed(x, name, module=modules[0]):
                return x if name is None else rms_norm(x, part(module, name).weight, norm)

            y, given = torch.zeros_like(x), normed(x, block.attn_norm)
            for own, module in zip(blocks, modules, strict=True):
                if own.attends:
                    attention = ReferenceAttention(own.attention, norm, module.self_attn, len(tokens))
                    y += attention(given, step, attention.empty_pages(len(pages), page_tokens))
            x = x + normed(y, block.attn_post_norm) * block.residual_multiplier
            y, given = torch.zeros_like(x), normed(x, block.ffn_norm)
            for own, module in zip(blocks, modules, strict=True):
                y += _feed_forward(own.mlp, module.mlp)(given)
            x = x + normed(y, block.ffn_post_norm) * block.residual_multiplier
        last = rms_norm(x, self.parts[0].body.norm.weight, norm)
        logits = torch.cat([one.output(last).float() for one in self.parts], -1) / self.decoder.logits_scaling
        cap = self.decoder.final_logit_softcapping
        return logits if cap is None else cap * torch.tanh(logits / cap)
