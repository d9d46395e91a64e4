"""What an engine has done so far."""

from dataclasses import dataclass
from typing import NamedTuple


class Requests(NamedTuple):
    """Requests in an engine: those with an answer that runs, and those without."""

    running: int
    waiting: int


@dataclass(frozen=True)
class Stats:
    """Counts since the engine was made, and pages at this moment.

    tokens: computed by the runner. answer_tokens: given out. prefix_tokens: of prompts, found in pages that were there.
    guessed_tokens: by look-up and by a draft. right_tokens: those of them that came so.
    runner_seconds: in the runner, and in the draft. own_seconds: of steps, in everything else.
    """

    steps: int
    tokens: int
    answer_tokens: int
    prefix_tokens: int
    preemptions: int
    pages_used: int
    pages_free: int
    guessed_tokens: int
    right_tokens: int
    runner_seconds: float
    own_seconds: float
