"""Tokens with the pages that hold them, and pages that several sequences share."""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


class SharedPages:
    """Full pages that sequences with the same first tokens find and share.

    Where pages are not fixed, each sequence has a last page of its own. It goes on in a copy of it where a chunk of its
    prompt ends with a page: that page is kept for others, who go on in copies of it, too.

    Args:
        pool: the pages. page_tokens: tokens in one.
        publishes: whether others find them.
        fixed_pages, can_go_on: see `Runner`.
        most_kept: pages that are kept, at most.
    """

    def __init__(
        self,
        pool: PagePool,
        page_tokens: int,
        publishes: bool,
        *,
        fixed_pages: bool = True,
        can_go_on: Callable[[int], bool] = lambda page: True,
        most_kept: int = 64,
    ) -> None:
        self.pool, self.page_tokens, self.publishes = pool, page_tokens, publishes
        self.fixed_pages, self.can_go_on = fixed_pages, can_go_on
        self.kept: OrderedDict[int, None] = OrderedDict()  # the oldest first
        self.most_kept = most_kept
        self._copies: list[tuple[int, int]] = []

    def take_copies(self) -> list[tuple[int, int]]:
        """Pages to be copied before anything is computed, as (source, target), in order; each is given once."""
        copies, self._copies = self._copies, []
        return copies

    def drop_kept(self) -> list[int]:
        """Pages that are not kept any more, since there are too many."""
        return [self.kept.popitem(last=False)[0] for _ in range(len(self.kept) - self.most_kept)]

    def next_key(self, sequence: TokenSequence) -> tuple[int | None, tuple[int, ...]]:
        """What the pool knows the page of its next tokens by."""
        return self._key(sequence, sequence.cached // self.page_tokens)

    def may_adopt(self, sequence: TokenSequence) -> bool:
        """Whether its next page is full without its last token, whose logits no page has."""
        return (sequence.cached // self.page_tokens + 1) * self.page_tokens < len(sequence.tokens)

    def adopt(self, sequence: TokenSequence) -> int:
        """Takes pages that others have computed for its next tokens. Returns the number of these."""
        before = sequence.cached
        self.share_found(sequence)
        if sequence.cached > before and not self.fixed_pages:
            self.own_last(sequence)
        return sequence.cached - before

    def share_found(self, sequence: TokenSequence) -> None:
        """Shares the pages for its next tokens, as many as it can go on after; `own_last` is due where pages are not
        fixed."""
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

    def advance(self, sequence: TokenSequence, count: int, spare: int = 0) -> None:
        """So many of its next tokens have been computed; pages that are full now are published. spare: free pages that
        may be taken to keep others."""
        full = sequence.cached // self.page_tokens
        sequence.cached += count
        if not self.publishes:
            return
        for index in range(full, sequence.cached // self.page_tokens):
            key, page = self._key(sequence, index), sequence.pages[index]
            sequence.pages[index] = self.pool.publish(*key, page, anew=not self.fixed_pages)
        if not self.fixed_pages and count > 1 and sequence.cached % self.page_tokens == 0 and spare > 0:
            self._leave_last(sequence)

    def publish(self, tokens: Sequence[int], pages: list[int]) -> None:
        """Lets others find full pages with these tokens, which nobody uses then."""
        size, previous = self.page_tokens, None
        for index, page in enumerate(pages):
            key = tuple(tokens[index * size : (index + 1) * size])
            previous = pages[index] = self.pool.publish(previous, key, page, anew=not self.fixed_pages)
        self._give_back(pages)

    def shares_last(self, sequence: TokenSequence) -> bool:
        """Whether it needs a copy of its last page to go on."""
        is_fixed = self.fixed_pages and sequence.cached == len(sequence.pages) * self.page_tokens
        return not is_fixed and self.pool.users[sequence.pages[-1]] > 1

    def own_last(self, sequence: TokenSequence) -> None:
        """A copy in the place of the page that has the last token computed."""
        index = (sequence.cached - 1) // self.page_tokens
        shared = sequence.pages[index]
        sequence.pages[index] = self.pool.take(like=shared)
        self._give_back([shared])
        self._copies.append((shared, sequence.pages[index]))

    def release(self, sequence: TokenSequence) -> None:
        """It has no pages any more."""
        self._give_back(sequence.pages)
        sequence.pages, sequence.cached = [], 0

    def _leave_last(self, sequence: TokenSequence) -> None:
        """Its last page, which is full, is for others."""
        page = sequence.pages[sequence.cached // self.page_tokens - 1]
        if self.pool.is_published(page) and self.can_go_on(page):
            self.own_last(sequence)

    def _give_back(self, pages: list[int]) -> None:
        """Those without users, after which others can go on, are kept."""
        self.pool.release(pages)
        for page in () if self.fixed_pages else pages:
            if self.pool.is_published(page) and not self.pool.users[page] and self.can_go_on(page):
                self.kept[page] = None
                self.kept.move_to_end(page)

    def _find(self, sequence: TokenSequence, first: int) -> list[int]:
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

    def _key(self, sequence: TokenSequence, index: int) -> tuple[int | None, tuple[int, ...]]:
        """The page before a sequence's page, and the tokens in this one."""
        first = index * self.page_tokens
        previous = sequence.pages[index - 1] if index else None
        return previous, tuple(sequence.tokens[first : first + self.page_tokens])
