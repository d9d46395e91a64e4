"""What comes of a step: tokens for answers, forks, and ends."""

from collections.abc import Collection

from torch import Tensor

from .beams import Beams, Candidate, are_numbers
from .request import Generation, Request
from .sampler import NOT_NUMBERS, Failed, Sampled, sample
from .scheduler import Plan, Scheduler
from .stream import FinishReason


class Answers:
    """Requests that are computed: their answers get tokens until they end.

    threads: that sample, at most.
    live: the requests. tokens: given out. guessed, right: tokens that were guessed, and those of them that came so.
    """

    def __init__(self, scheduler: Scheduler[Generation], threads: int | None) -> None:
        self.scheduler, self.threads = scheduler, threads
        self.live: dict[Request, None] = {}
        self.tokens = self.guessed = self.right = 0

    def begin(self, generation: Generation) -> None:
        self.live[generation.request] = None
        self.scheduler.add(generation)

    def end(self, request: Request, reason: FinishReason, error: str | None = None) -> None:
        """All answers of a request, without another token."""
        for generation in list(request.generations):
            self._end(generation, reason, error)

    def take(self, plan: Plan[Generation], logits: Tensor) -> None:
        """The logits of a step, rows as its chunks want them."""
        rows: list[Generation] = []
        places: list[int] = []
        guesses: list[tuple[Generation, tuple[int, ...], int]] = []
        place = 0
        for generation, chunk in zip(plan.sequences, plan.chunks, strict=True):
            if chunk.logits and generation.running and generation.request.beams is not None:
                self._note(generation, generation.request.beams, logits[place])
            elif chunk.logits and generation.running:
                own = [generation, *self._fork(generation)]
                rows += own
                places += [place] * len(own)
                if chunk.guessed:
                    guesses.append((generation, chunk.guessed, place + 1))
            place += chunk.logits
        if not rows:
            return
        first = logits if places == list(range(len(logits))) else logits[places]
        for generation, outcome in zip(rows, sample(first, rows, self.threads), strict=True):
            self._give(generation, outcome)
        for generation, guessed, place in guesses:
            self._check_guesses(generation, guessed, logits[place : place + len(guessed)])

    def _note(self, beam: Generation, beams: Beams, logits: Tensor) -> None:
        """What may come next of a beam; when it is known of all, they go on."""
        if not are_numbers(logits):
            self.scheduler.pool.forget(beam.pages)
            self.end(beam.request, "error", NOT_NUMBERS)
        elif beams.note(beam, logits):
            going = beams.advance()
            if going:
                self._go_on(beam.request, beams, going)
            else:
                self._give_best(beam.request, beams)

    def _go_on(self, request: Request, beams: Beams, going: list[Candidate]) -> None:
        """A beam that goes on in several ways is forked; one that goes on in none is dropped."""
        self._leave(request, {beam for _, beam, _ in going})
        seen: set[Generation] = set()
        grown: list[Generation] = []
        for _, beam, _ in going:
            grown.append(self._twin(beam) if beam in seen else beam)
            seen.add(beam)
        beams.scores = {beam: score for beam, (score, _, _) in zip(grown, going, strict=True)}
        for beam, (_, _, token) in zip(grown, going, strict=True):
            beam.tokens.append(token)
            beam.width = 1
            self.scheduler.go_on(beam)

    def _twin(self, beam: Generation) -> Generation:
        twin = beam.another(1 + max(one.answer for one in beam.request.generations))
        self.scheduler.fork(beam, twin)
        return twin

    def _leave(self, request: Request, going: Collection[Generation] = ()) -> None:
        """Drops all beams but those that go on."""
        for beam in [beam for beam in request.generations if beam not in going]:
            request.generations.remove(beam)
            self.scheduler.remove(beam)

    def _give_best(self, request: Request, beams: Beams) -> None:
        self._leave(request)
        del self.live[request]
        given, missing = 0, "there are no more answers in so few tokens"
        for _, tokens in beams.ended[: request.sampling.n]:
            try:
                request.put_tokens(given, tokens)
            except Exception as error:
                missing = f"decoding failed: {error}"
                break
            given += 1
            self.tokens += len(tokens)
        request.end(range(given, request.sampling.n), "error", missing)

    def _check_guesses(self, generation: Generation, guessed: tuple[int, ...], logits: Tensor) -> None:
        """As long as the answer goes on as was guessed, the next token has its logits already."""
        self.guessed += len(guessed)
        for row, token in enumerate(guessed):
            if not generation.running or generation.tokens[-1] != token:
                return
            generation.cached += 1
            self.right += 1
            (outcome,) = sample(logits[row : row + 1], [generation])
            self._give(generation, outcome)

    def _fork(self, generation: Generation) -> list[Generation]:
        if generation.width == 1:
            return []
        others = generation.others()
        for other in others:
            self.scheduler.fork(generation, other)
        return others

    def _give(self, generation: Generation, outcome: Sampled | Failed) -> None:
        if isinstance(outcome, Failed):
            if outcome.reason == NOT_NUMBERS:
                self.scheduler.pool.forget(generation.pages)  # which may have such keys and values
            self._end(generation, "error", outcome.reason)
            return
        try:
            finished = generation.take(outcome)
        except Exception as error:
            self._end(generation, "error", f"decoding failed: {error}")
            return
        self.tokens += 1
        if finished:
            self._drop(generation)

    def _end(self, generation: Generation, reason: FinishReason, error: str | None = None) -> None:
        generation.end(reason, error)
        self._drop(generation)

    def _drop(self, generation: Generation) -> None:
        self.scheduler.remove(generation)
        if not generation.request.generations:
            del self.live[generation.request]
