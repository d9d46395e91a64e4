"""Which sequences compute which of their tokens in a step, and in which pages."""

from array import array
from bisect import insort
from collections import OrderedDict
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
    parting: tokens that it has in common with published pages.
    """

    tokens: "array[int]"
    prompt: int
    order: tuple[int, int, int]
    width: int = 1
    pages: list[int] = field(default_factory=list)
    cached: int = 0
    running: bool = False
    parting: int = 0

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
        publishes: whether others find full pages.
        fixed_pages, can_go_on: see `Runner`. Where pages are not fixed, each sequence has its own last page, and goes
            on in a copy of it where a chunk of its prompt ends with a page; that page is kept for others.
        most_kept: such pages at most.
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
        publishes: bool = True,
        fixed_pages: bool = True,
        can_go_on: Callable[[int], bool] = lambda page: True,
        most_kept: int = 64,
        guess: Callable[[S, int], tuple[int, ...]] = lambda sequence, most: (),
    ) -> None:
        self.pool, self.page_tokens = pool, page_tokens
        self.publishes, self.fixed_pages, self.can_go_on = publishes, fixed_pages, can_go_on
        self.kept: OrderedDict[int, None] = OrderedDict()  # the oldest first
        self.most_kept = most_kept
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
        """The child goes on where the parent is, with the same pages."""
        parent.width -= 1
        for page in parent.pages:
            self.pool.share(page)
        child.pages, child.cached = list(parent.pages), parent.cached
        self._run(child)

    def schedule(self) -> Plan[S]:
        plan = Plan[S]()
        self._start_waiting(plan)
        for sequence in [sequence for sequence in self.running if sequence.pending == 1]:
            if sequence.running and self._has_place(sequence, plan):
                self._add(plan, sequence, 1)
        self._add_guesses(plan)
        self._add_prompts(plan, self.step_tokens - sum(len(chunk.tokens) for chunk in plan.chunks))
        return plan

    def commit(self, plan: Plan[S]) -> list[tuple[int, int]]:
        """The plan has been computed; pages that are full now are published. Returns pages to be copied at once."""
        copies: list[tuple[int, int]] = []
        for sequence, chunk in zip(plan.sequences, plan.chunks, strict=True):
            full = sequence.cached // self.page_tokens
            sequence.cached += len(chunk.tokens) - len(chunk.guessed)
            if self.publishes:
                for index in range(full, sequence.cached // self.page_tokens):
                    key, page = self._key(sequence, index), sequence.pages[index]
                    sequence.pages[index] = self.pool.publish(*key, page, anew=not self.fixed_pages)
                if not self.fixed_pages and len(chunk.tokens) > 1 and sequence.cached % self.page_tokens == 0:
                    self._leave_last(sequence, copies)
        return copies

    def drop_kept(self) -> list[int]:
        """Pages that are not kept any more, since there are too many."""
        return [self.kept.popitem(last=False)[0] for _ in range(len(self.kept) - self.most_kept)]

    def _leave_last(self, sequence: S, copies: list[tuple[int, int]]) -> None:
        """Leaves a sequence's last page, which is full, to others, if there are more pages than those that run need."""
        page = sequence.pages[sequence.cached // self.page_tokens - 1]
        if self.pool.free > len(self.running) and self.pool.is_published(page) and self.can_go_on(page):
            self._own_last(sequence, copies)

    def _own_last(self, sequence: S, copies: list[tuple[int, int]]) -> None:
        """A copy in the place of its last page, so far as it is computed."""
        index = (sequence.cached - 1) // self.page_tokens
        shared = sequence.pages[index]
        sequence.pages[index] = self.pool.take(like=shared)
        self._give_back([shared])
        copies.append((shared, sequence.pages[index]))

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
                self.prefix_tokens += self._adopt(sequence, plan.copies)
                key = self._key(sequence, sequence.cached // self.page_tokens)
                if not (key in computed and self._may_adopt(sequence)):
                    computed.add(key)
                    count = self._chunk_tokens(sequence, budget)
                    self._add(plan, sequence, count)
                    budget -= count

    def _chunk_tokens(self, sequence: S, budget: int) -> int:
        """At most the budget; to the end of a page if there are more tokens, and a page's end is that near. Where pages
        are not fixed, to where others parted from this sequence: more of them may come."""
        end = min(sequence.cached + budget, len(sequence.tokens))
        if not self.fixed_pages and sequence.cached < sequence.parting < end:
            end = sequence.parting
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

    def _adopt(self, sequence: S, copies: list[tuple[int, int]]) -> int:
        """Takes pages that others have computed for its next tokens. Returns the number of these."""
        before = sequence.cached
        self._share_found(sequence)
        if sequence.cached > before and not self.fixed_pages:
            self._own_last(sequence, copies)
        return sequence.cached - before

    def _share_found(self, sequence: S) -> None:
        """Shares published pages for its next tokens, as many as it can go on after."""
        first = sequence.cached // self.page_tokens
        found = self._find(sequence, first)
        sequence.parting = (first + len(found)) * self.page_tokens
        while found and not self.can_go_on(found[-1]):
            found.pop()
        for index, page in enumerate(found, first):
            self.pool.share(page)
            self.pool.release(sequence.pages[index : index + 1])
            sequence.pages[index : index + 1] = [page]
            sequence.cached = (index + 1) * self.page_tokens

    def _find(self, sequence: S, first: int) -> list[int]:
        """Published pages with its tokens, from page number `first` on; not with its last token, whose logits no page
        has."""
        found: list[int] = []
        previous = sequence.pages[first - 1] if first else None
        for start in range(first * self.page_tokens, len(sequence.tokens) - self.page_tokens, self.page_tokens):
            previous = self.pool.lookup(previous, tuple(sequence.tokens[start : start + self.page_tokens]))
            if previous is None:
                break
            found.append(previous)
        return found

    def _start_waiting(self, plan: Plan[S]) -> None:
        """Starts sequences as long as this step has tokens for them, or others of lower priority run."""
        pending = sum(sequence.pending for sequence in self.running)
        while self.waiting:
            first = self.waiting[0]
            if pending >= self.step_tokens and first.priority <= self.running[-1].priority:
                return
            if not self._start(first, plan):
                return
            pending += first.pending

    def _start(self, sequence: S, plan: Plan[S]) -> bool:
        self._share_found(sequence)
        copied = int(sequence.cached > 0 and not self.fixed_pages)
        needed = self._pages_of(len(sequence.tokens)) - len(sequence.pages)
        if not self._make_room(sequence, needed + copied):
            self._release(sequence)
            return False
        self.prefix_tokens += sequence.cached
        if copied:
            self._own_last(sequence, plan.copies)
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
        while self._shares_last(sequence) or sequence.cached == len(sequence.pages) * self.page_tokens:
            if self.pool.free:
                self._give_page(sequence, plan)
                continue
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _shares_last(self, sequence: S) -> bool:
        """Whether it needs a copy of its last page to go on."""
        is_fixed = self.fixed_pages and sequence.cached == len(sequence.pages) * self.page_tokens
        return not is_fixed and self.pool.users[sequence.pages[-1]] > 1

    def _give_page(self, sequence: S, plan: Plan[S]) -> None:
        """A copy of the last page, or a new one."""
        if self._shares_last(sequence):
            self._own_last(sequence, plan.copies)
        else:
            sequence.pages.append(self.pool.take())

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
        self._give_back(sequence.pages)
        sequence.pages, sequence.cached = [], 0

    def _give_back(self, pages: list[int]) -> None:
        """Pages without users, after which others can go on, are kept."""
        self.pool.release(pages)
        for page in () if self.fixed_pages else pages:
            if self.pool.is_published(page) and not self.pool.users[page] and self.can_go_on(page):
                self.kept[page] = None
                self.kept.move_to_end(page)
