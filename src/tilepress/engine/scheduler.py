"""Which sequences compute which of their tokens in a step, and in which pages."""

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

from .batch import Chunk
from .pages import PagePool
from .sequence import SharedPages, TokenSequence

S = TypeVar("S", bound=TokenSequence)
_ORDER = attrgetter("order")


@dataclass
class Plan(Generic[S]):
    """A step: each chunk with its sequence, and pages to be copied before, as (source, target), in order."""

    sequences: list[S] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


class Scheduler(Generic[S]):
    """Sequences that run, with pages for all their tokens, and those that wait.

    In a step, each decoding sequence computes its one token. The other tokens of the step are those of prompts, by
    `order`. A sequence starts when there are pages for all its tokens, and one more for each that runs. When a
    sequence needs a page and none is free, the last one in order loses its pages and waits again. Sequences all of
    whose tokens are computed keep their pages until they go on, or others need them.

    Args:
        pool: the pages. page_tokens: tokens in one.
        step_tokens: tokens of a step at most.
        max_sequences: sequences that run at a time, at most; not more than step_tokens.
        publishes, fixed_pages, can_go_on, most_kept: see `SharedPages`.
        guess: given sequences that decode, each with the number of tokens that may be guessed at most, and a number for
            all together: tokens that may follow their own. They are computed with its last token, in places that other
            tokens may take; never the last place of a page.
    """

    def __init__(
        self,
        pool: PagePool,
        page_tokens: int,
        step_tokens: int,
        max_sequences: int,
        *,
        publishes: bool = True,
        fixed_pages: bool = True,
        can_go_on: Callable[[int], bool] = lambda page: True,
        most_kept: int = 64,
        guess: Callable[[dict[S, int], int], Mapping[S, tuple[int, ...]]] = lambda places, budget: {},
    ) -> None:
        self.pool, self.page_tokens = pool, page_tokens
        self.shared = SharedPages(
            pool, page_tokens, publishes, fixed_pages=fixed_pages, can_go_on=can_go_on, most_kept=most_kept
        )
        self.guess = guess
        self.step_tokens, self.max_sequences = step_tokens, max_sequences
        self.running: list[S] = []  # by order, as those that wait
        self.waiting: list[S] = []
        self.parked: set[S] = set()  # without pages, and with no token to compute
        self.preemptions = 0
        self.prefix_tokens = 0  # of prompts, found in pages that others had computed

    def add(self, sequence: S) -> None:
        insort(self.waiting, sequence, key=_ORDER)

    def remove(self, sequence: S) -> None:
        """Its pages are released; it is known no more."""
        if sequence.running:
            self._stop(sequence)
        elif sequence in self.parked:
            self.parked.remove(sequence)
        else:
            self.waiting.remove(sequence)

    def fork(self, parent: S, child: S) -> None:
        """The child goes on where the parent is, with the same pages; if that has none, it computes all anew."""
        parent.width -= 1
        if not parent.running:
            self.add(child)
            return
        for page in parent.pages:
            self.pool.share(page)
        child.pages, child.cached = list(parent.pages), parent.cached
        self._run(child)

    def go_on(self, sequence: S) -> None:
        """One that had no token to compute has one again."""
        if sequence in self.parked:
            self.parked.remove(sequence)
            self.add(sequence)

    def schedule(self) -> Plan[S]:
        """A plan is empty only if there is nothing to compute: sequences without tokens to compute make room."""
        plan = self._plan()
        while not plan.chunks and self.waiting and self.running:
            self._preempt(self.running[-1])
            plan = self._plan()
        plan.copies = self.shared.take_copies()
        return plan

    def _plan(self) -> Plan[S]:
        self._start_waiting()
        decoding = [sequence for sequence in self.running if sequence.pending == 1]
        guesses = self._guesses(decoding)
        plan = Plan[S]()
        for sequence in decoding:
            if sequence.running and self._has_place(sequence):
                self._add(plan, sequence, 1, guesses.get(sequence, ()))
        self._add_prompts(plan, self.step_tokens - sum(len(chunk.tokens) for chunk in plan.chunks))
        return plan

    def commit(self, plan: Plan[S]) -> list[tuple[int, int]]:
        """The plan has been computed; pages that are full now are published. Returns pages to be copied at once."""
        for sequence, chunk in zip(plan.sequences, plan.chunks, strict=True):
            spare = self.pool.free - len(self.running)
            self.shared.advance(sequence, len(chunk.tokens) - len(chunk.guessed), spare)
        return self.shared.take_copies()

    def _add(self, plan: Plan[S], sequence: S, count: int, guessed: tuple[int, ...] = ()) -> None:
        start, end = sequence.cached, sequence.cached + count
        tokens, pages = tuple(sequence.tokens[start:end]), tuple(sequence.pages[: self._pages_of(end)])
        logits = 1 + len(guessed) if end == len(sequence.tokens) else 0
        plan.sequences.append(sequence)
        plan.chunks.append(Chunk((*tokens, *guessed), start, pages, logits))

    def _guesses(self, decoding: list[S]) -> Mapping[S, tuple[int, ...]]:
        """What may come next; half of what decoding leaves of the step at most, where prompts want it, too. Nothing of
        the step is decided before, that an interrupt could leave half done."""
        places = {sequence: self.page_tokens - 2 - sequence.cached % self.page_tokens for sequence in decoding}
        budget = self.step_tokens - len(decoding)
        if any(sequence.pending > 1 for sequence in self.running):
            budget //= 2
        return self.guess({sequence: most for sequence, most in places.items() if most > 0}, budget)

    def _add_prompts(self, plan: Plan[S], budget: int) -> None:
        """Chunks of prompts. Where another prompt computes a page in this step, who needs the same waits for it."""
        computed = set()
        for sequence in self.running:
            if budget and sequence.pending > 1:
                self.prefix_tokens += self.shared.adopt(sequence)
                key = self.shared.next_key(sequence)
                if not (key in computed and self.shared.may_adopt(sequence)):
                    computed.add(key)
                    count = self._chunk_tokens(sequence, budget)
                    self._add(plan, sequence, count)
                    budget -= count

    def _chunk_tokens(self, sequence: S, budget: int) -> int:
        """At most the budget; to the end of a page if there are more tokens, and a page's end is that near. Where pages
        are not fixed, to where others parted from this sequence: more of them may come."""
        end = min(sequence.cached + budget, len(sequence.tokens))
        if not self.shared.fixed_pages and sequence.cached < sequence.parting < end:
            end = sequence.parting
        whole = end - end % self.page_tokens
        return (whole if end < len(sequence.tokens) and whole > sequence.cached else end) - sequence.cached

    def _pages_of(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)

    def _start_waiting(self) -> None:
        """Starts sequences as long as this step has tokens for them, or others of lower priority run."""
        pending = sum(sequence.pending for sequence in self.running)
        while self.waiting:
            first = self.waiting[0]
            if pending >= self.step_tokens and first.priority <= self.running[-1].priority:
                return
            if not self._start(first):
                return
            pending += first.pending

    def _start(self, sequence: S) -> bool:
        self.shared.share_found(sequence)
        copied = sequence.cached > 0 and not self.shared.fixed_pages
        needed = self._pages_of(len(sequence.tokens)) - len(sequence.pages)
        if not self._make_room(sequence, needed + copied):
            self.shared.release(sequence)
            return False
        self.prefix_tokens += sequence.cached
        if copied:
            self.shared.own_last(sequence)
        sequence.pages += [self.pool.take() for _ in range(needed)]
        self.waiting.remove(sequence)
        self._run(sequence)
        return True

    def _make_room(self, sequence: S, needed: int) -> bool:
        """Preempts sequences of lower priority if, and only if, that lets this one start."""
        lower = [other for other in self.running if other.priority < sequence.priority]
        victims: list[S] = []
        while not self._fits(sequence, needed, victims):
            if not lower:
                return False
            victims.append(lower.pop())
        for victim in victims:
            self._preempt(victim)
        return True

    def _fits(self, sequence: S, needed: int, victims: list[S]) -> bool:
        """Whether it could start without the victims."""
        free = self.pool.free + self.pool.freed_by([page for victim in victims for page in victim.pages])
        others = len(self.running) - len(victims)
        width = sum(one.width for one in self.running) - sum(one.width for one in victims) + sequence.width
        return free >= needed + others and width <= self.max_sequences

    def _has_place(self, sequence: S) -> bool:
        """Whether a page of its own has a place for its next token; others later in order may lose theirs for it. If
        there is none, it waits again itself."""
        while (shares := self.shared.shares_last(sequence)) or self._is_full(sequence):
            if self.pool.free:
                self.shared.own_last(sequence) if shares else sequence.pages.append(self.pool.take())
                continue
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _is_full(self, sequence: S) -> bool:
        return sequence.cached == len(sequence.pages) * self.page_tokens

    def _preempt(self, sequence: S) -> None:
        self.preemptions += 1
        held = not sequence.pending
        self._stop(sequence)
        if held:
            self.parked.add(sequence)
        else:
            self.add(sequence)

    def _run(self, sequence: S) -> None:
        sequence.running = True
        insort(self.running, sequence, key=_ORDER)

    def _stop(self, sequence: S) -> None:
        self.running.remove(sequence)
        sequence.running = False
        self.shared.release(sequence)
