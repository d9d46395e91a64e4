"""Any body gets an answer: 200 or a refusal, soon, and the server goes on."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilepress.serve.errors import ApiError
from tilepress.serve.requests import ChatRequest, CompletionRequest, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({*ChatRequest.model_fields, *CompletionRequest.model_fields, "input", "tokens", "add_special_tokens"})
SOUND = {
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(-1, 400),
    "min_p": st.floats(0, 1),
    "typical_p": st.floats(0.01, 1),
    "repetition_penalty": st.floats(0.01, 100),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "seed": st.integers(-(1 << 63), (1 << 63) - 1),
    "stop": st.text(min_size=1, max_size=3) | st.lists(st.text(min_size=1, max_size=3), max_size=3),
    "logit_bias": st.dictionaries(st.integers(0, 330).map(str), st.floats(-100, 100), max_size=4),
    "n": st.integers(1, 4),
    "stream": st.booleans(),
    "echo": st.booleans(),
    "prompt": st.text(max_size=20) | st.lists(st.integers(0, 330), max_size=9),
    "logprobs": st.booleans() | st.integers(0, 21),
}
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"]
FEW = {"max_tokens": 3, "max_completion_tokens": 3}
common = settings(suppress_health_check=list(HealthCheck), derandomize=True, database=None)


def checked(reply):
    assert reply.status_code in (200, 400, 404, 415), reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]["message"]
    return reply.status_code


@given(st.sampled_from(PATHS), st.fixed_dictionaries({}, optional={name: VALUES for name in NAMES}))
@settings(common, max_examples=80)
def test_bodies_of_anything(running, path, body):
    content = json.dumps({**body, **FEW}).encode()
    checked(running.http.post(path, content=content, headers={"Content-Type": "application/json"}))


@given(st.fixed_dictionaries({}, optional=SOUND))
@settings(common, max_examples=80)
def test_bodies_that_are_nearly_right(running, body):
    checked(running.post("/v1/completions", {"prompt": "a", **body, "max_tokens": 3}))


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,0123456789eE.-tfn\\u ', max_size=60).map(str.encode))
@settings(common, max_examples=300)
def test_bytes(body):
    for kind in (ChatRequest, CompletionRequest):
        try:
            parse(kind, body)
        except ApiError as error:
            assert error.status == 400


def test_the_server_is_well_after_all(running):
    assert running.settled(lambda: running.engine.idle)
    assert running.http.get("/health").status_code == 200 and running.engine.stats.pages_used == 0
    assert running.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status_code == 200
