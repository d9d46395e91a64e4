"""Guesses of what comes next by a draft: a smaller model with the same vocabulary."""

import time
import warnings
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from .batch import Chunk, Runner, check_logits
from .pages import PagePool
from .request import Generation
from .sampler import Failed, sample
from .sampling import Sampling
from .sequence import SharedPages, TokenSequence

TAKES_BACK = "needs a cache that can take tokens back: float32, bf16 or bfp8, no sliding window"
_FAILURES = 3  # in a row, after which a draft is switched off


@dataclass(eq=False, kw_only=True)
class _Shadow(TokenSequence):
    """An answer in the draft: its tokens, and after them the guesses of one step.

    seed, sampling: as the model draws, without what only the answer can tell. ends: tokens that end it.
    own: tokens that are the answer's. wanted: guesses at most. guessed: those so far.
    spoiled: logits were not numbers; it gets no guesses any more.
    """

    seed: int
    sampling: Sampling
    ends: frozenset[int]
    own: int = 0
    wanted: int = 0
    guessed: list[int] = field(default_factory=list)
    spoiled: bool = False

    def follow(self, tokens: "array[int]") -> None:
        """The answer has these tokens now. What the draft has computed of them stays."""
        same = self.own
        while same < min(self.cached, len(tokens)) and self.tokens[same] == tokens[same]:
            same += 1
        self.cached = min(self.cached, same)
        del self.tokens[same:]
        self.tokens.extend(tokens[same:])
        self.own, self.guessed = len(tokens), []

    def take(self, token: int) -> None:
        self.guessed.append(token)
        self.tokens.append(token)

    @property
    def wants_more(self) -> bool:
        return 0 < len(self.guessed) < self.wanted and self.guessed[-1] not in self.ends and not self.spoiled


class Draft:
    """Guesses for many answers at a time: as many steps of a smaller model as there are tokens to be guessed.

    It draws a token by the random number that the model is going to draw it by. So both choose the same one as often as
    they agree, at any temperature, and since only tokens that the model itself chooses become part of an answer, that
    is the one without a draft. Masks are left out, since they may count on being asked about the answer alone.

    An answer has pages here, too, from its first guess on; one that finds none free gets no guesses. Guesses never take
    the last place of a page, and can be taken back. Whatever goes wrong here, there are no guesses; a draft that goes
    wrong again and again is switched off.

    Args:
        runner: computes the draft. vocabulary: of the model.
        tokens: that are guessed at most for an answer in a step.
        step_tokens: tokens of answers that are computed at most before the first guess of a step; long prompts take
            several steps.
        publishes: whether pages of prompts are kept for others that begin alike.
    """

    def __init__(self, runner: Runner, vocabulary: int, tokens: int, step_tokens: int, *, publishes: bool) -> None:
        if runner.vocabulary != vocabulary:
            raise ValueError(f"a draft has the model's vocabulary: {vocabulary} tokens, not {runner.vocabulary}")
        if not runner.fixed_pages:
            raise ValueError(f"a draft {TAKES_BACK}")
        if tokens < 1:
            raise ValueError(f"draft_tokens is a number of tokens, 1 or more, not {tokens}")
        self.runner, self.tokens, self.step_tokens = runner, tokens, step_tokens
        self.seconds = 0.0
        self.pool = PagePool(runner.pages, self._release)
        self._shared = SharedPages(self.pool, runner.page_tokens, publishes)
        self._shadows: dict[Generation, _Shadow] = {}
        self._failures = 0

    def guess(self, places: Mapping[Generation, int], budget: int) -> dict[Generation, tuple[int, ...]]:
        """For each answer at most so many tokens that may follow, and at most `budget` for all together."""
        began = time.perf_counter()
        try:
            return self._guess(places, budget) if self._failures < _FAILURES else {}
        except BaseException as error:
            self._fail(error)
            return {}
        finally:
            self.seconds += time.perf_counter() - began

    def forget_stopped(self) -> None:
        """Pages of answers that have ended, or wait for pages of the model, are free."""
        for generation in [generation for generation in self._shadows if not generation.running]:
            self._forget(generation)

    def _guess(self, places: Mapping[Generation, int], budget: int) -> dict[Generation, tuple[int, ...]]:
        begun: dict[Generation, _Shadow] = {}
        for generation, most in places.items():
            shadow = self._begin(generation, min(most, budget, self.tokens))
            if shadow is not None:
                begun[generation] = shadow
                budget -= shadow.wanted
        counts = self._first_chunks(list(begun.values()))
        if not counts:
            return {}
        while counts:
            self._compute(counts)
            counts = {shadow: 1 for shadow in counts if shadow.wants_more}
        self._failures = 0
        return {generation: tuple(shadow.guessed) for generation, shadow in begun.items() if shadow.guessed}

    def _begin(self, generation: Generation, most: int) -> _Shadow | None:
        """What computes guesses for an answer; None if it gets none in this step."""
        shadow = self._shadows.get(generation) or _shadow(generation)
        if most <= 0 or shadow.spoiled:
            return None
        shadow.follow(generation.tokens)
        length, page_tokens = len(shadow.tokens), self.runner.page_tokens
        shadow.wanted = min(most, page_tokens - length % page_tokens, self.runner.longest + 1 - length)
        self._shadows[generation] = shadow
        if shadow.wanted > 0 and self._has_places(shadow, length + shadow.wanted - 1):
            return shadow
        self._forget(generation)
        return None

    def _has_places(self, shadow: _Shadow, length: int) -> bool:
        """Whether it has pages for so many tokens."""
        self._shared.adopt(shadow)
        needed = -(-length // self.runner.page_tokens) - len(shadow.pages)
        if needed > self.pool.free:
            return False
        shadow.pages += [self.pool.take() for _ in range(needed)]
        return True

    def _first_chunks(self, shadows: list[_Shadow]) -> dict[_Shadow, int]:
        """How many of their answers' tokens they compute. Where one computes a page, who needs the same waits."""
        counts: dict[_Shadow, int] = {}
        keys = set()
        budget = self.step_tokens
        for shadow in sorted(shadows, key=lambda shadow: shadow.pending):
            key = self._shared.next_key(shadow)
            if budget and not (key in keys and self._shared.may_adopt(shadow)):
                keys.add(key)
                counts[shadow] = min(shadow.pending, budget)
                budget -= counts[shadow]
        return counts

    def _compute(self, counts: Mapping[_Shadow, int]) -> None:
        """One step: so many tokens of each, and a guess for those that have no others."""
        chunks = [self._chunk(shadow, count) for shadow, count in counts.items()]
        logits = self.runner.run(chunks)
        check_logits(self.runner, chunks, logits)
        for shadow, count in counts.items():
            self._shared.advance(shadow, count)
        rows = [shadow for shadow in counts if not shadow.pending]
        for shadow, outcome in zip(rows, sample(logits, rows) if rows else (), strict=True):
            if isinstance(outcome, Failed):
                self.pool.forget(shadow.pages)  # which may have keys and values that are not numbers
                self._empty(shadow)
                shadow.spoiled = True
            else:
                shadow.take(outcome.token)

    def _chunk(self, shadow: _Shadow, count: int) -> Chunk:
        end = shadow.cached + count
        pages = shadow.pages[: -(-end // self.runner.page_tokens)]
        tokens = tuple(shadow.tokens[shadow.cached : end])
        return Chunk(tokens, shadow.cached, tuple(pages), int(end == len(shadow.tokens)))

    def _forget(self, generation: Generation) -> None:
        self._empty(self._shadows.pop(generation))

    def _empty(self, shadow: _Shadow) -> None:
        self.pool.release(shadow.pages)
        shadow.pages, shadow.cached = [], 0

    def _release(self, page: int) -> None:
        with suppress(Exception):  # a page that is not forgotten takes memory, at worst
            self.runner.release((page,))

    def _fail(self, error: BaseException) -> None:
        """Nothing is known of the pages of a step that failed. What interrupts the engine is passed on."""
        for generation in list(self._shadows):
            self._forget(generation)
        if not isinstance(error, Exception):
            raise error
        self._failures += 1
        if self._failures == _FAILURES:
            what = f"{type(error).__name__}: {error}"
            warnings.warn(f"the draft is switched off, since it fails: {what}", RuntimeWarning, stacklevel=2)


def _shadow(generation: Generation) -> _Shadow:
    """Without pages, and nothing computed."""
    plain = replace(generation.sampling, mask=None, logprobs=None, n=1, best_of=None)
    return _Shadow(
        tokens=generation.tokens[:],
        prompt=generation.prompt,
        order=generation.order,
        seed=generation.seed,
        sampling=plain,
        ends=generation.request.ends,
    )
