"""Whatever is submitted, cancelled, preempted and shared: pages are accounted for, and texts are those of requests
alone."""

from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.engine.families import LENGTH, make, tokens
from tests.engine.toy import Half, ToyRunner, check_pages, check_pool

from tilepress.engine import Engine, Sampling
from tilepress.engine.packed import PackedModel
from tilepress.engine.reference import ReferenceModel

LONGEST = 32
EOS = 7
PREFIXES = [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1), (9,), ()]

prompts = st.builds(
    lambda prefix, rest: prefix + rest,
    st.sampled_from(PREFIXES),
    st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple),
)


@st.composite
def samplings(draw):
    n = draw(st.integers(1, 3))
    if draw(st.integers(0, 4)) == 0:
        return {"max_tokens": draw(st.integers(1, 14)), "n": n, "beams": draw(st.integers(3, 4)), "best_of": None}
    return {
        "max_tokens": draw(st.integers(1, 14)),
        "n": n,
        "best_of": draw(st.sampled_from([None, n, n + 1])),
        "seed": draw(st.integers(0, 3)),
        "temperature": draw(st.sampled_from([0.0, 0.0, 1.0])),
        "top_k": draw(st.sampled_from([0, 5])),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.5])),
        "ignore_eos": draw(st.booleans()),
    }


@cache
def alone(prompt, options):
    """Tokens and reasons of a request in an engine of its own, that computes everything in one chunk."""
    engine = Engine(ToyRunner(pages=64, longest=LONGEST), eos=[EOS])
    stream = engine.submit(prompt, Sampling(**dict(options))).wait()
    return [(answer.tokens, answer.finish_reason) for answer in stream.answers]


class Traffic(RuleBasedStateMachine):
    @initialize(
        pages=st.integers(8, 24),
        step_tokens=st.integers(4, 24),
        max_sequences=st.integers(4, 8),
        fixed_pages=st.booleans(),
        most_kept=st.integers(1, 6),
        lookup=st.sampled_from([0, 1, 5]),
        drafted=st.sampled_from([None, ToyRunner, Half]),
        draft_pages=st.integers(4, 24),
    )
    def start(self, pages, step_tokens, max_sequences, fixed_pages, most_kept, lookup, drafted, draft_pages):
        self.now = 0.0
        self.runner = ToyRunner(pages=pages, longest=LONGEST, fixed_pages=fixed_pages)
        self.draft = drafted(draft_pages, longest=LONGEST, page_tokens=5) if drafted and fixed_pages else None
        self.engine = Engine(
            self.runner,
            step_tokens=step_tokens,
            max_sequences=max_sequences,
            lookup=lookup if fixed_pages else 0,
            draft=self.draft,
            draft_tokens=2,
            eos=[EOS],
            clock=lambda: self.now,
        )
        self.engine.scheduler.shared.most_kept = most_kept
        self.requests = []

    @rule(
        prompt=prompts,
        options=samplings(),
        priority=st.integers(0, 2),
        wait=st.sampled_from([None, None, None, 2.0, 6.0]),
    )
    def submit(self, prompt, options, priority, wait):
        deadline = None if wait is None else self.now + wait
        stream = self.engine.submit(prompt, Sampling(**options), priority=priority, deadline=deadline)
        self.requests.append((stream, prompt, tuple(options.items())))

    @rule(count=st.integers(1, 6))
    def step(self, count):
        for _ in range(count):
            self.engine.step()
            check_pages(self.engine)
            self.now += 0.5

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data):
        data.draw(st.sampled_from([stream for stream, *_ in self.requests])).cancel()

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel_during_a_step(self, data):
        self.runner.during = data.draw(st.sampled_from([stream for stream, *_ in self.requests])).cancel
        self.engine.step()
        self.runner.during = None

    @precondition(lambda self: self.draft and self.requests)
    @rule(data=st.data())
    def cancel_while_the_draft_computes(self, data):
        self.draft.during = data.draw(st.sampled_from([stream for stream, *_ in self.requests])).cancel
        self.engine.step()
        self.draft.during = None

    @rule()
    def fail(self):
        self.runner.failing = RuntimeError("out of luck")
        self.engine.step()
        self.runner.failing = None

    @precondition(lambda self: self.draft)
    @rule()
    def fail_in_the_draft(self):
        self.draft.failing = RuntimeError("out of luck")
        self.engine.step()
        self.draft.failing = None
        self.engine.step()

    @invariant()
    def pages_are_accounted_for(self):
        if hasattr(self, "engine"):
            check_all_pages(self.engine)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        self.engine.run()
        check_all_pages(self.engine)
        assert self.engine.stats.pages_used == 0 and self.engine.idle
        for stream, prompt, options in self.requests:
            check_answers(stream, prompt, options)


REFERENCE_REQUESTS = [  # prompt, options, priority
    (tokens(20), {"max_tokens": 12, "temperature": 0.0}, 0),
    (tokens(20)[:17] + tokens(5, seed=2), {"max_tokens": 12, "temperature": 1.0, "seed": 1}, 0),
    (tokens(13, seed=3), {"max_tokens": 10, "temperature": 1.0, "seed": 2, "n": 3}, 1),
    (tokens(30, seed=4), {"max_tokens": 8, "temperature": 0.7, "seed": 3, "top_p": 0.9, "best_of": 2}, 0),
    (tokens(20), {"max_tokens": 6, "temperature": 0.0, "logprobs": 2}, 2),
]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("pages, step_tokens", [(64, 512), (64, 7), (8, 16), (7, 5)])
def test_a_model_with_pages_to_spare_and_without(family, pages, step_tokens):
    model = make(family)
    engine = Engine(ReferenceModel(model, 8, pages, longest=LENGTH), step_tokens=step_tokens)
    streams = []
    for prompt, options, priority in REFERENCE_REQUESTS:
        streams.append(engine.submit(prompt, Sampling(**options), priority=priority))
        engine.step()
        check_pages(engine)
    engine.run()
    check_pages(engine)
    assert (engine.stats.preemptions > 0) == (pages < 64)
    for stream, (prompt, options, _) in zip(streams, REFERENCE_REQUESTS, strict=True):
        own = Engine(ReferenceModel(model, 8, 64, longest=LENGTH)).submit(prompt, Sampling(**options)).wait()
        assert [answer.tokens for answer in stream.answers] == [answer.tokens for answer in own.answers]


@pytest.mark.parametrize("pages", [80, 13])
@pytest.mark.parametrize("kv", ["bfp8", "bfp4", "bfp8+sparse:k30,v50"])
def test_packed_sequences_with_pages_to_spare_and_without(kv, pages):
    """Answers that begin alike, long enough for shared pages; forks; and preemption."""
    model = make("llama", max_position_embeddings=512)
    start = tokens(150)
    requests = [
        (start, {"max_tokens": 50}),
        (start[:140] + tokens(20, seed=2), {"max_tokens": 40, "temperature": 1.0, "seed": 1, "n": 3}),
        (start, {"max_tokens": 30, "temperature": 1.0, "seed": 2}),
        (start[:128], {"max_tokens": 70, "temperature": 1.0, "seed": 5, "n": 2}),
    ]
    engine = Engine(PackedModel(model, kv, pages), step_tokens=100)
    streams = []
    for priority, (prompt, options) in enumerate(requests):
        streams.append(engine.submit(prompt, Sampling(**options), priority=priority))
        for _ in range(3):
            engine.step()
            check_pages(engine)
    engine.run()
    check_pages(engine)
    assert (engine.stats.preemptions > 0) == (pages < 80)
    assert engine.stats.prefix_tokens > 0
    for stream, (prompt, options) in zip(streams, requests, strict=True):
        own = Engine(PackedModel(model, kv, 80)).submit(prompt, Sampling(**options)).wait()
        assert [answer.tokens for answer in stream.answers] == [answer.tokens for answer in own.answers]
    assert engine.runner._open.keys() == engine.scheduler.shared.kept.keys()


def test_greedy_answers_are_those_of_transformers():
    model = make("llama")
    engine = Engine(ReferenceModel(model, 8, 8, longest=LENGTH), step_tokens=16)
    prompts = [tokens(count, seed=count) for count in (3, 16, 29)]
    streams = [engine.submit(prompt, Sampling(max_tokens=10)) for prompt in prompts]
    engine.run()
    for prompt, stream in zip(prompts, streams, strict=True):
        generated = model.generate(torch.tensor([prompt]), max_new_tokens=10, do_sample=False, eos_token_id=None)
        assert stream.tokens == generated[0, len(prompt) :].tolist()


def check_all_pages(engine):
    check_pages(engine)
    if engine.draft:
        shadows = engine.draft._shadows
        check_pool(engine.draft.pool, [shadow.pages for shadow in shadows.values()])
        assert all(generation.running for generation in shadows)


def check_answers(stream, prompt, options):
    """Of several candidates those that were finished when the request ended are compared with all."""
    assert stream.finished
    options = dict(options)
    candidates = max(options["n"], options["best_of"] or 0)
    expected = alone(prompt, tuple({**options, "n": candidates, "best_of": None}.items()))
    for number, answer in enumerate(stream.answers):
        among = expected if candidates > options["n"] else [expected[number]]
        if answer.finish_reason in ("stop", "length"):
            assert (answer.tokens, answer.finish_reason) in among
        else:
            assert any(answer.tokens == text[: len(answer.tokens)] for text, _ in among)
        assert [one.token for one in stream._results if one.answer == number and one.token is not None] == answer.tokens


Traffic.TestCase.settings = settings(max_examples=30, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestTraffic = Traffic.TestCase
