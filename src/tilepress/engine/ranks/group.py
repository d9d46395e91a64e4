"""Rank 0: the runner of a whole model, of which it computes its own part while other processes compute theirs."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from torch import Tensor

from ... import _native
from ...kernels.placement import own_cpus
from ...tiles.packing import thread_count
from ..batch import Chunk, Runner, check_pages
from ..decoder import Decoder
from ..native import NativeModel
from .cut import PartModel, cut_block, cut_ends, part_decoder
from .messages import Cache, Setup, runner_of
from .places import nodes, places
from .processes import Processes
from .shares import Shares, shares_of


@dataclass(frozen=True)
class Whole:
    """A model of a family that `describe` knows, and which rank has what of it."""

    model: Any
    decoder: Decoder
    shares: Shares

    def ends(self, rank: int) -> PartModel:
        return cut_ends(self.model, self.decoder, self.shares, rank)

    def layers(self, rank: int) -> Iterator[Any]:
        """One at a time: no two need to be in memory twice."""
        modules = self.model.get_decoder().layers
        for block, module, shares in zip(self.decoder.blocks, modules, self.shares.blocks, strict=True):
            yield cut_block(block, module, shares, rank)


class RankedModel(Runner):
    """A `Runner` of several processes. This one is rank 0, and moves to its CPUs; the others are started here, and end
    with it or by `close`. Where one of them ends or fails, so does the step, and every later one.

    Args:
        model: of a family that `describe` knows. The parts are copies: it is needed no longer.
        ranks: processes, 2 or more.
        decoder: what the model computes.
        cache: keys and values, of the whole model.
        page_bytes: of one page, all ranks.
        threads: of all ranks together; by default a rank has one for each of its CPUs.

    Raises:
        ValueError: the model cannot be cut so. RuntimeError: a process could not be started.
    """

    def __init__(
        self, model: Any, ranks: int, decoder: Decoder, cache: Cache, page_bytes: int, threads: int | None = None
    ) -> None:
        whole = Whole(model, decoder, shares_of(decoder, ranks))
        self.page_bytes = page_bytes
        self._turn, self._ended = Lock(), ""
        self._processes = Processes(ranks)
        self.close = weakref.finalize(self, self._processes.close)
        try:
            self.own = self._begin(whole, _setups(whole, ranks, cache, threads))
        except BaseException:
            self.close()
            raise
        self.page_tokens, self.pages, self.longest = self.own.page_tokens, self.own.pages, self.own.longest
        self.vocabulary, self.fixed_pages = self.own.vocabulary, self.own.fixed_pages
        self.threads = self.own.threads

    def run(self, chunks: Sequence[Chunk]) -> Tensor:
        """As that of `NativeModel`; RuntimeError if another rank fails, or has."""
        with self._turn:
            places = self.own.places_of(chunks)
            with self._together():
                self._processes.tell_all("run", chunks)
                return self.own.compute(chunks, places)

    def copy_page(self, source: int, target: int) -> None:
        check_pages(self, (source, target))
        with self._turn, self._together():
            self._processes.tell_all("copy_page", source, target)
            self.own.copy_page(source, target)

    def can_go_on(self, page: int) -> bool:
        return self.own.can_go_on(page)

    def release(self, pages: Sequence[int]) -> None:
        with self._turn, suppress(RuntimeError), self._together():
            self._processes.tell_all("release", list(pages))
            self.own.release(pages)

    def _begin(self, whole: Whole, setups: Sequence[Setup]) -> NativeModel:
        """Gives the others their parts, and makes this rank's own."""
        for setup in setups[1:]:
            self._processes.tell(setup.number, setup)
            self._processes.tell(setup.number, whole.ends(setup.number))
            for layer in whole.layers(setup.number):
                self._processes.tell(setup.number, layer)
        if setups[0].cpus is not None:
            self._processes.move(setups[0].cpus)
        part = whole.ends(0)
        part.body.layers.extend(whole.layers(0))
        own = runner_of(setups[0], part, self._processes.exchange)
        self._processes.wait_until_ready()
        return own

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What goes wrong here leaves ranks at different steps: none of them goes on."""
        if self._ended:
            raise RuntimeError(self._ended)
        try:
            yield
        except BaseException as error:
            self._ended = f"{error or type(error).__name__}; without it there is no step: open the engine again"
            self._processes.exchange.fail()
            raise


def _setups(whole: Whole, ranks: int, cache: Cache, threads: int | None) -> list[Setup]:
    own = own_cpus()
    cpus: Sequence[list[int] | None] = places(ranks, own, nodes()) if own else [None] * ranks
    return [
        Setup(
            number=rank,
            decoder=part_decoder(whole.decoder, whole.shares, rank),
            shares=whole.shares,
            cache=cache,
            threads=_threads(threads, ranks, rank, cpus[rank]),
            isa=_native.active_isa(),
            cpus=cpus[rank],
        )
        for rank in range(ranks)
    ]


def _threads(threads: int | None, ranks: int, rank: int, cpus: list[int] | None) -> int:
    """A rank's share of so many, or one for each of its CPUs."""
    if threads is not None:
        all_threads = thread_count(threads)
        return max(1, all_threads * (rank + 1) // ranks - all_threads * rank // ranks)
    return thread_count(None) if cpus is None else thread_count(len(cpus))
