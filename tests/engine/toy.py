"""A runner whose logits are a function of the tokens that it finds in pages: a wrong page gives another text."""

import random

import torch

from tilepress.engine.packed import PackedModel

VOCABULARY = 32
PAGE_TOKENS = 4


class ToyRunner:
    """Pages hold tokens; logits are random numbers of a hash of all tokens of a sequence. Pages that are released hold
    nothing any more. If they are not fixed, all tokens of a sequence are known by its last page, where it stands."""

    def __init__(self, pages=16, longest=64, page_tokens=PAGE_TOKENS, fixed_pages=True):
        self.fixed_pages = fixed_pages
        self.page_tokens, self.pages, self.longest = page_tokens, pages, longest
        self.vocabulary, self.page_bytes = VOCABULARY, 4 * page_tokens
        self.held = [[None] * page_tokens for _ in range(pages)]
        self.standing = {}  # tokens by page
        self.steps = []  # chunks of each
        self.computed = 0
        self.failing = None  # an exception to raise
        self.during = None  # called in each step

    def run(self, chunks):
        if self.failing is not None:
            raise self.failing
        if self.during is not None:
            self.during()
        self.steps.append(chunks)
        places = [place for chunk in chunks for place in self._write(chunk)]
        assert len(set(places)) == len(places), "two chunks write to one place"
        self.computed += len(places)
        rows = [logits_of(read) for chunk in chunks for read in self._wanted(chunk)]
        return torch.stack(rows) if rows else torch.empty(0, VOCABULARY)

    def copy_page(self, source, target):
        assert self.held[source][0] is not None
        self.held[target] = list(self.held[source])
        if not self.fixed_pages:
            self.standing[target] = self.standing[source]

    def can_go_on(self, page):
        return self.fixed_pages or len(self.standing.get(page, [None])) % self.page_tokens == 0

    def release(self, pages):
        for page in pages:
            self.held[page] = [None] * self.page_tokens
            self.standing.pop(page, None)

    def _write(self, chunk):
        assert chunk.tokens and len(set(chunk.pages)) == len(chunk.pages)
        end = chunk.start + len(chunk.tokens)
        assert end <= self.longest and len(chunk.pages) == -(-end // self.page_tokens)
        if not self.fixed_pages:
            self._move(chunk)
        for place, token in enumerate(chunk.tokens, chunk.start):
            page, slot = chunk.pages[place // self.page_tokens], place % self.page_tokens
            self.held[page][slot] = token
            yield page, slot

    def _move(self, chunk):
        """Its sequence stands at the end of the chunk, and nowhere else."""
        before = self.standing.pop(chunk.pages[(chunk.start - 1) // self.page_tokens]) if chunk.start else ()
        assert len(before) == chunk.start
        for page in chunk.pages[chunk.start // self.page_tokens :]:
            self.standing.pop(page, None)
        self.standing[chunk.pages[-1]] = before + chunk.tokens

    def _wanted(self, chunk):
        read = self._read(chunk)
        return [read[: len(read) - after] for after in reversed(range(chunk.logits))]

    def _read(self, chunk):
        if not self.fixed_pages:
            return self.standing[chunk.pages[-1]]
        end = chunk.start + len(chunk.tokens)
        tokens = [token for page in chunk.pages for token in self.held[page]][:end]
        assert None not in tokens
        return tuple(tokens)


class Half(ToyRunner):
    """What the toy says, half of the time."""

    def run(self, chunks):
        logits = super().run(chunks)
        ends = [len(self._read(chunk)) for chunk in chunks if chunk.logits]
        for row, end in zip(logits, ends, strict=True):
            row[end % VOCABULARY] += 5 * (end % 2)
        return logits


def logits_of(tokens):
    """float32 [vocabulary] after these tokens."""
    drawn = random.Random(repr(tokens))
    return torch.tensor([drawn.gauss(0, 2) for _ in range(VOCABULARY)])


def greedy(prompt, count):
    """The most probable tokens, one after another."""
    tokens = tuple(prompt)
    for _ in range(count):
        tokens += (int(logits_of(tokens).argmax()),)
    return list(tokens[len(prompt) :])


def check_pages(engine):
    """Counts of users are those of the sequences, and no page is in two places, or lost."""
    running = engine.scheduler.running
    for sequence in running:
        assert sequence.running
        assert len(sequence.pages) * engine.runner.page_tokens >= sequence.cached
    assert all(not sequence.pages and not sequence.running for sequence in engine.scheduler.waiting)
    check_pool(engine.pool, [sequence.pages for sequence in running])
    assert engine.stats.pages_free == engine.pool.free
    check_kept(engine)


def check_pool(pool, held):
    """Its counts are those of the pages that users hold."""
    users = [0] * pool.pages
    for pages in held:
        assert len(set(pages)) == len(pages)
        for page in pages:
            users[page] += 1
    assert pool.users == users
    free = [*pool._empty, *pool._unused]
    assert sorted(free) == [page for page, count in enumerate(users) if not count] and pool.free == len(free)
    assert all(page in pool._keys for page in pool._unused) and not set(pool._empty) & set(pool._keys)
    assert pool._published == {key: page for page, key in pool._keys.items()}
    assert pool._serials.keys() >= pool._keys.keys()
    assert all(users[page] for page in pool._serials.keys() - pool._keys.keys())  # copies of published pages


def check_kept(engine):
    """Where pages are not fixed, every sequence in the runner's memory runs, or is kept for others."""
    shared, runner = engine.scheduler.shared, engine.runner
    kept = shared.kept
    assert len(kept) <= shared.most_kept and all(engine.pool.is_published(page) for page in kept)
    if runner.fixed_pages:
        assert not kept
        return
    size, running = runner.page_tokens, engine.scheduler.running
    last = {sequence.pages[(sequence.cached - 1) // size] for sequence in running if sequence.cached}
    unwritten = {page for sequence in running for page in sequence.pages[-(-sequence.cached // size) :]}
    standing = runner._open if isinstance(runner, PackedModel) else runner.standing
    assert last | kept.keys() == standing.keys() - unwritten
