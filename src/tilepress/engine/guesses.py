"""Tokens that may come next, for all answers that decode: from the text before, else from a draft."""

from collections.abc import Mapping

from .batch import Runner
from .draft import TAKES_BACK, Draft
from .lookup import look_up
from .request import Generation


class Guesser:
    """Guesses for the scheduler.

    Args:
        runner: of the model. lookup: tokens that are guessed at most from what came after the same tokens before.
        draft: guesses for answers for which nothing was found there.
    """

    def __init__(self, runner: Runner, lookup: int, draft: Draft | None) -> None:
        if lookup < 0:
            raise ValueError(f"lookup is a number of tokens, 0 or more, not {lookup}")
        if (lookup or draft) and not runner.fixed_pages:
            raise ValueError(f"{'lookup' if lookup else 'a draft'} {TAKES_BACK}")
        self.lookup, self.draft = lookup, draft

    def guess(self, places: Mapping[Generation, int], budget: int) -> dict[Generation, tuple[int, ...]]:
        """For each answer at most so many tokens, and at most `budget` for all together."""
        found: dict[Generation, tuple[int, ...]] = {}
        left: dict[Generation, int] = {}
        for generation, most in places.items():
            if generation.request.beams is not None:
                continue
            left[generation] = min(most, generation.request.limit - len(generation.tokens) - 1)  # the last is no guess
            guessed = self._look_up(generation, min(left[generation], budget))
            if guessed:
                found[generation] = guessed
                budget -= len(guessed)
        if self.draft is not None:
            found |= self.draft.guess({one: most for one, most in left.items() if one not in found}, budget)
        return found

    def _look_up(self, generation: Generation, most: int) -> tuple[int, ...]:
        most = min(most, self.lookup)
        return look_up(generation.tokens, most) if most > 0 else ()
