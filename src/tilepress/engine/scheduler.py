"""Which sequences compute which of their tokens in a step, and in which pages."""

from array import array
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Generic, TypeVar

from .batch import Chunk
from .pages import PagePool


@dataclass(eq=False, kw_only=True)
class TokenSequence:
    """Tokens of a prompt and of one answer to it.

    tokens: int64 ids so far. prompt: how many of them are its prompt.
    order: the smallest is served first, and preempted last; -order[0] is its priority.
    width: sequences that it will be, once its prompt is computed.
    pages: those that hold its tokens. cached: tokens whose keys and values are there.
    running: whether it has pages, or waits for them.
    """

    tokens: "array[int]"
    prompt: int
    order: tuple[int, int, int]
    width: int = 1
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    running: bool = False

    @property
    def pending(self) -> int:
        """Tokens that are to be computed."""
        return len(self.tokens) - self.cached

    @property
    def priority(self) -> int:
        return -self.order[0]


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
    sequence needs a page and none is free, the last one in order loses its pages and waits again.

    Args:
        pool: the pages. page_tokens: tokens in one.
        step_tokens: tokens of a step at most.
        max_sequences: sequences that run at a time, at most; not more than step_tokens.
        shares_pages: whether forks share theirs. publishes: whether others find full pages.
        guess: given a sequence and a number, at most so many tokens that may follow its own. They are computed with its
            last token, in places that other tokens may take; never the last place of a page.
    """

    def __init__(
        self,
        pool: PagePool,
        page_tokens: int,
        step_tokens: int,
        max_sequences: int,
        *,
        shares_pages: bool = True,
        publishes: bool = True,
        guess: Callable[[S, int], tuple[int, ...]] = lambda sequence, most: (),
    ) -> None:
        self.pool, self.page_tokens = pool, page_tokens
        self.shares_pages, self.publishes = shares_pages, publishes and shares_pages
        self.guess = guess
        self.step_tokens, self.max_sequences = step_tokens, max_sequences
        self.running: list[S] = []  # by order, as those that wait
        self.waiting: list[S] = []
        self.preemptions = 0
        self.prefix_tokens = 0  # of prompts, found in pages that others had computed

    def add(self, sequence: S) -> None:
        insort(self.waiting, sequence, key=_ORDER)

    def remove(self, sequence: S) -> None:
        """Its pages are released; it is known no more."""
        if sequence.running:
            self._stop(sequence)
        else:
            self.waiting.remove(sequence)

    def fork(self, parent: S, child: S) -> None:
        """The child goes on where the parent is, with the same pages; without shared pages it computes all anew."""
        parent.width -= 1
        if not self.shares_pages:
            self.add(child)
            return
        for page in parent.pages:
            self.pool.share(page)
        child.pages, child.cached = list(parent.pages), parent.cached
        self._run(child)

    def schedule(self) -> Plan[S]:
        self._start_waiting()
        plan = Plan[S]()
        for sequence in [sequence for sequence in self.running if sequence.pending == 1]:
            if sequence.running and self._has_place(sequence, plan):
                self._add(plan, sequence, 1)
        self._add_guesses(plan)
        self._add_prompts(plan, self.step_tokens - sum(len(chunk.tokens) for chunk in plan.chunks))
        return plan

    def commit(self, plan: Plan[S]) -> None:
        """The plan has been computed; pages that are full now are published."""
        for sequence, chunk in zip(plan.sequences, plan.chunks, strict=True):
            full = sequence.cached // self.page_tokens
            sequence.cached += len(chunk.tokens) - len(chunk.guessed)
            for index in range(full, sequence.cached // self.page_tokens) if self.publishes else ():
                previous, tokens = self._key(sequence, index)
                sequence.pages[index] = self.pool.publish(previous, tokens, sequence.pages[index])

    def _add(self, plan: Plan[S], sequence: S, count: int) -> None:
        start, end = sequence.cached, sequence.cached + count
        tokens, pages = tuple(sequence.tokens[start:end]), tuple(sequence.pages[: self._pages_of(end)])
        plan.sequences.append(sequence)
        plan.chunks.append(Chunk(tokens, start, pages, int(end == len(sequence.tokens))))

    def _add_guesses(self, plan: Plan[S]) -> None:
        """What may come next, after the one token of each sequence of the plan."""
        budget = self.step_tokens - len(plan.chunks)
        for index, (sequence, chunk) in enumerate(zip(plan.sequences, plan.chunks, strict=True)):
            places = self.page_tokens - 2 - chunk.start % self.page_tokens
            guessed = self.guess(sequence, min(places, budget)) if min(places, budget) > 0 else ()
            if guessed:
                budget -= len(guessed)
                plan.chunks[index] = replace(chunk, tokens=(*chunk.tokens, *guessed), logits=1 + len(guessed))

    def _add_prompts(self, plan: Plan[S], budget: int) -> None:
        """Chunks of prompts. Where another prompt computes a page in this step, who needs the same waits for it."""
        computed = set()
        for sequence in self.running:
            if budget and sequence.pending > 1:
                self.prefix_tokens += self._adopt(sequence)
                key = self._key(sequence, sequence.cached // self.page_tokens)
                if not (key in computed and self._may_adopt(sequence)):
                    computed.add(key)
                    count = self._chunk_tokens(sequence, budget)
                    self._add(plan, sequence, count)
                    budget -= count

    def _chunk_tokens(self, sequence: S, budget: int) -> int:
        """At most the budget; to the end of a page if there are more tokens, and a page's end is that near."""
        end = min(sequence.cached + budget, len(sequence.tokens))
        whole = end - end % self.page_tokens
        return (whole if end < len(sequence.tokens) and whole > sequence.cached else end) - sequence.cached

    def _pages_of(self, tokens: int) -> int:
        return -(-tokens // self.page_tokens)

    def _key(self, sequence: S, index: int) -> tuple[int | None, tuple[int, ...]]:
        """What the pool knows a sequence's page by: the page before it, and its tokens."""
        first = index * self.page_tokens
        previous = sequence.pages[index - 1] if index else None
        return previous, tuple(sequence.tokens[first : first + self.page_tokens])

    def _may_adopt(self, sequence: S) -> bool:
        """Whether its next page is full without its last token, whose logits no page has."""
        return (sequence.cached // self.page_tokens + 1) * self.page_tokens < len(sequence.tokens)

    def _adopt(self, sequence: S) -> int:
        """Takes pages that others have computed for its next tokens. Returns the number of these."""
        before = sequence.cached
        while self._may_adopt(sequence):
            index = sequence.cached // self.page_tokens
            page = self.pool.lookup(*self._key(sequence, index))
            if page is None:
                break
            self.pool.share(page)
            self.pool.release(sequence.pages[index : index + 1])
            sequence.pages[index : index + 1] = [page]
            sequence.cached = (index + 1) * self.page_tokens
        return sequence.cached - before

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
        found = self._adopt(sequence)
        needed = self._pages_of(len(sequence.tokens)) - len(sequence.pages)
        if not self._make_room(sequence, needed):
            self._release(sequence)
            return False
        self.prefix_tokens += found
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

    def _has_place(self, sequence: S, plan: Plan[S]) -> bool:
        """Whether a page of its own has a place for its next token; others later in order may lose theirs for it. If
        there is none, it waits again itself."""
        while sequence.cached == len(sequence.pages) * self.page_tokens or self.pool.users[sequence.pages[-1]] > 1:
            if self.pool.free:
                self._give_page(sequence, plan)
                return True
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _give_page(self, sequence: S, plan: Plan[S]) -> None:
        """A new last page, or a copy of the last one."""
        page = self.pool.take()
        if sequence.cached % self.page_tokens:
            shared = sequence.pages.pop()
            self.pool.release([shared])
            plan.copies.append((shared, page))
        sequence.pages.append(page)

    def _preempt(self, sequence: S) -> None:
        self.preemptions += 1
        self._stop(sequence)
        self.add(sequence)

    def _run(self, sequence: S) -> None:
        sequence.running = True
        insort(self.running, sequence, key=_ORDER)

    def _stop(self, sequence: S) -> None:
        self.running.remove(sequence)
        sequence.running = False
        self._release(sequence)

    def _release(self, sequence: S) -> None:
        self.pool.release(sequence.pages)
        sequence.pages, sequence.cached = [], 0
