"""Continuous batching: many requests on one runner, each step a batch of whatever can go on."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Condition, Lock, get_ident
from typing import Any

from torch import Tensor

from ..formats.kv import KvFormat
from .answers import Answers
from .batch import check_logits
from .beams import Beams
from .draft import Draft
from .guesses import Guesser
from .opening import open_models
from .packed import PackedModel
from .pages import PagePool
from .prefix_file import load_prefix, save_prefix
from .ranks.group import RankedModel
from .request import Generation, Request, check_request, token_ids
from .sampling import Sampling
from .scheduler import Plan, Scheduler
from .stats import Requests, Stats
from .stream import Stream
from .text import Decode

KEPT = 32  # pages for each one that is kept in the middle of a prompt, where pages are not fixed


class Engine:
    """Runs requests together. `submit` and `Stream.cancel` may be called from any thread; one thread at a time steps.

        engine = tilepress.Engine("smollm2-135m", kv="bfp8", kv_memory="2 GiB")
        stream = engine.submit("Name a river.", Sampling(max_tokens=20))
        for result in stream:
            print(result.text, end="")

    Args:
        model: a name or a folder as `load_model` takes it, a causal language model of transformers, packed or not, or
            a `Runner`. Models of families that `describe` does not know are refused.
        kv: format of keys and values: float32, bf16, bfp8, bfp4n+rotate, sparse:k30,v50 …; if not given, what the model
            remembers, else bfp8, or float32 where heads cannot be cut in its groups.
        threads: of the native step; by default as many as torch has.
        ranks: processes that each compute a part of every layer, such as one for each NUMA node, which `threads` are
            divided among; by default a rank then has one for each of its CPUs. See docs/ranks.md.
        kv_memory: of pages, in bytes or like "4 GiB". It is taken as tokens come.
        smoothing: of keys in block floating point, none or online; if neither this nor `kv` is given, what the model
            remembers.
        longest: tokens of a sequence at most; by default what the model's config says.
        step_tokens: tokens that a step computes at most; long prompts take several steps.
        max_sequences: answers that are computed at a time, at most.
        prefix_cache: whether pages of prompts are kept for others that begin alike, as long as no one needs them.
        lookup: tokens of an answer that are guessed at most in a step, from what came after the same tokens before
            ("prompt look-up"). Answers stay the same; those that repeat their prompts come faster, others slower.
        draft: a smaller or more compressed model with the same vocabulary, given as `model` is, that guesses where
            look-up finds nothing. It draws by the model's random numbers, and only what the model draws too is kept:
            answers stay the same, at any temperature. `kv`, `smoothing`, `longest` and `threads` are for both models,
            and `kv_memory` is divided so that both have room for the same tokens; a `Runner` brings its own pages.
        draft_tokens: that a draft guesses at most for an answer in a step.
        decode: ids of tokens to text, without which answers have none; by default the tokenizer's of a model that was
            named.
        eos: ids that end an answer; by default the model's.
        clock: seconds, for deadlines.
    """

    def __init__(
        self,
        model: Any,
        kv: str | KvFormat | None = None,
        *,
        threads: int | None = None,
        ranks: int = 1,
        kv_memory: int | str = "4 GiB",
        smoothing: str | None = None,
        longest: int | None = None,
        step_tokens: int = 256,
        max_sequences: int = 256,
        prefix_cache: bool = True,
        lookup: int = 0,
        draft: Any = None,
        draft_tokens: int = 4,
        decode: Decode | None = None,
        eos: Sequence[int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if step_tokens < 1 or max_sequences < 1:
            raise ValueError(f"step_tokens, {step_tokens}, and max_sequences, {max_sequences}, are 1 or more")
        opened, drafting = open_models(
            model,
            draft,
            kv,
            kv_memory=kv_memory,
            threads=threads,
            smoothing=smoothing,
            longest=longest,
            ranks=ranks,
        )
        runner = self.runner = opened.runner
        self.tokenizer, self.decode = opened.tokenizer, decode or opened.decode
        self.eos, self.clock = frozenset(opened.eos if eos is None else eos), clock
        self.draft = None
        if drafting is not None:
            self.draft = Draft(drafting.runner, runner.vocabulary, draft_tokens, step_tokens, publishes=prefix_cache)
        self.longest = min(runner.longest, runner.pages * runner.page_tokens)
        self._released: list[int] = []
        self.pool = PagePool(runner.pages, self._note_released)
        self.scheduler = Scheduler[Generation](
            self.pool,
            runner.page_tokens,
            step_tokens,
            min(max_sequences, step_tokens),
            publishes=prefix_cache,
            fixed_pages=runner.fixed_pages,
            can_go_on=runner.can_go_on,
            most_kept=max(1, runner.pages // KEPT),
            guess=Guesser(runner, lookup, self.draft).guess,
        )
        self.answers = Answers(self.scheduler, getattr(runner, "threads", None))
        self._lock = Lock()  # of what other threads than the one that steps change:
        self._submitted: list[Generation] = []
        self._cancelled: list[Request] = []
        self._arrivals = 0
        self._stepping = Lock()
        self._stepped = Condition()
        self._stepper: int | None = None
        self._steps = self._tokens = 0
        self._runner_seconds = self._own_seconds = 0.0

    def submit(
        self,
        prompt: Sequence[int] | str,
        sampling: Sampling | None = None,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Stream:
        """A request for an answer to a prompt, or for several. ValueError if it contradicts itself or the runner.

        Args:
            prompt: ids of its tokens; or a text, where the engine has a tokenizer.
            sampling: by default `Sampling()`.
            priority: higher is served first.
            deadline: by the engine's clock; what is not finished then ends.

        Returns:
            its results. A prompt that is too long for the runner or its pages is an answer that ends with an error.
        """
        tokens, sampling = token_ids(self._tokens_of(prompt), self.runner.vocabulary), sampling or Sampling()
        check_request(sampling, priority, deadline, self.runner.vocabulary, self.scheduler.max_sequences)
        if sampling.stop and self.decode is None:
            raise ValueError("stop is found in text, and this engine has no decode")
        request = self._request(len(tokens), sampling, deadline)
        if len(tokens) >= self.longest:
            error = f"the prompt has {len(tokens)} tokens, and there is room for {self.longest - 1}"
            request.end(range(sampling.n if request.beams else sampling.computed), "error", error)
            return request.stream
        with self._lock:
            order = (-priority, self._arrivals, 0)
            self._arrivals += 1
            generation = Generation(
                tokens=tokens, prompt=len(tokens), order=order, width=sampling.computed, request=request
            )
            self._submitted.append(generation)
        generation.prepare()
        return request.stream

    def _tokens_of(self, prompt: Sequence[int] | str) -> Sequence[int]:
        if not isinstance(prompt, str):
            return prompt
        if self.tokenizer is None:
            raise ValueError("this engine has no tokenizer: give ids of tokens")
        ids: list[int] = self.tokenizer(prompt)["input_ids"]
        return ids

    def save_prefix(self, prompt: Sequence[int] | str, path: str | Path) -> int:
        """Writes the keys and values of a prompt's whole pages to a file, for `load_prefix` and `load_kv_cache`.
        Returns how many tokens these are. ValueError if the cache is not a packed one, or there is no room."""
        runner, tokens = self._packed, list(token_ids(self._tokens_of(prompt), self.runner.vocabulary))
        tokens = tokens[: len(tokens) - len(tokens) % runner.page_tokens]
        with self._turn(blocking=True):
            pages = self._take_pages(len(tokens))
            try:
                save_prefix(runner, tokens, pages, self.scheduler.step_tokens, path)
            finally:
                self.pool.release(pages)
                self._release()
        return len(tokens)

    def load_prefix(self, path: str | Path) -> int:
        """Prompts that begin with the tokens of this file go on from there, as long as no one needs its pages. It is
        one that `save_prefix` wrote, or `ModelKvCache.save` with one text's tokens, for the same model and cache.
        Returns how many tokens. DamagedError or ValueError if it is not that, or there is no room."""
        runner = self._packed
        with self._turn(blocking=True):
            tokens, sequence = load_prefix(runner, path)
            pages = self._take_pages(len(tokens))
            runner.hold(pages, sequence)
            self.scheduler.shared.publish(tokens, pages)
            self._release()
        return len(tokens)

    @property
    def _packed(self) -> PackedModel:
        if not isinstance(self.runner, PackedModel) or not self.scheduler.shared.publishes:
            raise ValueError(
                "only engines with a packed cache and a prefix cache, in one process, keep prompts in files"
            )
        return self.runner

    def _take_pages(self, tokens: int) -> list[int]:
        count = tokens // self.runner.page_tokens
        if not 0 < count <= self.pool.free or tokens >= self.longest:
            raise ValueError(
                f"{tokens} tokens of whole pages: they have to fill one of {self.runner.page_tokens} or more, be fewer "
                f"than {self.longest}, and fit in {self.pool.free} free pages"
            )
        return [self.pool.take() for _ in range(count)]

    def close(self) -> None:
        """Ends the processes of other ranks, if there are any; no step can be made then."""
        if isinstance(self.runner, RankedModel):
            with self._turn(blocking=True):
                self.runner.close()

    def step(self) -> bool:
        """Computes one batch. Returns whether there is more to do."""
        with self._turn(blocking=True):
            self._step()
        return not self.idle

    def run(self) -> None:
        """Steps until there is nothing to do."""
        while self.step():
            pass

    @property
    def idle(self) -> bool:
        return not self.answers.live and not self._submitted

    @property
    def stats(self) -> Stats:
        return Stats(
            self._steps,
            self._tokens,
            self.answers.tokens,
            self.scheduler.prefix_tokens,
            self.scheduler.preemptions,
            self.pool.pages - self.pool.free,
            self.pool.free,
            self.answers.guessed,
            self.answers.right,
            self._computing_seconds,
            self._own_seconds,
        )

    @property
    def requests(self) -> Requests:
        """At this moment, for any thread."""
        running = len({generation.request for generation in list(self.scheduler.running)})
        return Requests(running, max(0, len(self.answers.live) + len(self._submitted) - running))

    @property
    def _computing_seconds(self) -> float:
        return self._runner_seconds + (self.draft.seconds if self.draft else 0)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Steps, or lets another thread step, until it is ready."""
        while not ready():
            with self._turn(blocking=False) as mine:
                if mine and not ready():
                    self._step()
            if not mine:
                with self._stepped:
                    self._stepped.wait_for(lambda: ready() or not self._stepping.locked())

    @contextmanager
    def _turn(self, *, blocking: bool) -> Iterator[bool]:
        """Makes this thread the one that steps, if it can; it then says so."""
        if self._stepper == get_ident():
            raise RuntimeError("a mask or a decode function cannot wait for the engine that calls it")
        mine = self._stepping.acquire(blocking=blocking)
        try:
            if mine:
                self._stepper = get_ident()
            yield mine
        finally:
            if mine:
                self._stepper = None
                with self._stepped:
                    self._stepping.release()
                    self._stepped.notify_all()

    def _step(self) -> None:
        began, before = time.perf_counter(), self._computing_seconds
        self._take_in()
        plan = self.scheduler.schedule()
        if plan.chunks:
            self._compute(plan)
        self._release()
        self._own_seconds += time.perf_counter() - began - (self._computing_seconds - before)

    def _compute(self, plan: Plan[Generation]) -> None:
        """What goes wrong here ends all requests of the step."""
        try:
            logits = self._run(plan)
            self._copy(self.scheduler.commit(plan))
            self._take_in()
            self.answers.take(plan, logits)
        except BaseException as error:
            for generation in plan.sequences:
                self.answers.end(generation.request, "error", f"the step failed: {type(error).__name__}: {error}")
            if not isinstance(error, Exception):
                raise

    def _take_in(self) -> None:
        """What was submitted and cancelled since, and deadlines."""
        with self._lock:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
        for generation in submitted:
            self.answers.begin(generation)
        for request in cancelled:
            self.answers.end(request, "cancelled")
        now = self.clock()
        for request in [one for one in self.answers.live if one.deadline is not None and one.deadline <= now]:
            self.answers.end(request, "deadline")
        self._release()

    def _copy(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            self.runner.copy_page(source, target)

    def _note_released(self, page: int) -> None:
        self._released.append(page)
        self.scheduler.shared.kept.pop(page, None)

    def _release(self) -> None:
        """Lets the runner forget pages. Never between a plan and its copies, whose sources may be among them."""
        unused = [page for page in self._released if self.pool.is_empty(page)] + self.scheduler.shared.drop_kept()
        self._released.clear()
        if unused:
            self.runner.release(unused)
        if self.draft is not None:
            self.draft.forget_stopped()

    def _run(self, plan: Plan[Generation]) -> Tensor:
        self._steps += 1
        began = time.perf_counter()
        try:
            self._copy(plan.copies)
            logits = self.runner.run(plan.chunks)
        finally:
            self._runner_seconds += time.perf_counter() - began
        check_logits(self.runner, plan.chunks, logits)
        self._tokens += sum(len(chunk.tokens) for chunk in plan.chunks)
        return logits

    def _cancel(self, request: Request) -> None:
        """At once if no step is in progress, else after it."""
        with self._lock:
            self._cancelled.append(request)
        if self._stepper != get_ident():
            with self._turn(blocking=False) as mine:
                if mine:
                    self._take_in()

    def _request(self, prompt: int, sampling: Sampling, deadline: float | None) -> Request:
        limit = self.longest if sampling.max_tokens is None else min(prompt + sampling.max_tokens, self.longest)
        request = Request(
            sampling=sampling,
            seed=secrets.randbits(64) if sampling.seed is None else sampling.seed,
            ends=frozenset(sampling.stop_tokens) | (frozenset() if sampling.ignore_eos else self.eos),
            limit=limit,
            deadline=deadline,
            decode=self.decode,
        )
        if sampling.beams > 1:
            request.beams = Beams(sampling, request.ends, prompt, limit)
        request.stream = Stream(sampling.n, self.wait, partial(self._cancel, request))
        return request
