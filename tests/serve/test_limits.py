"""What is too much, or wrong, is refused as OpenAI does it, and changes nothing."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from tests.serve.conftest import HELLO, LONGEST, served

from tilepress.serve.keys import Keys
from tilepress.serve.limits import Limits

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
KEYS = {"key-of-alice": "alice", "key-of-bob": "bob"}
JSON = {"Content-Type": "application/json"}


def refused(reply, status, **expected):
    error = reply.json()["error"]
    assert reply.status_code == status, error
    assert error.keys() == {"message", "type", "param", "code"} and error["message"]
    assert {name: error[name] for name in expected} == expected
    return error


@pytest.mark.parametrize(
    ("param", "value"),
    [
        *[("n", value) for value in (0, 17, 1.5, "2", True)],
        *[("temperature", value) for value in (-0.1, 2.1, "1", [])],
        *[("top_p", value) for value in (0, 1.1)],
        *[("max_tokens", value) for value in (0, -1, "many")],
        ("top_k", -2),
        ("min_p", 1.5),
        ("typical_p", 0),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-38),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        *[("seed", value) for value in (1 << 63, 0.5)],
        *[("stop", value) for value in ("", ["a", ""], ["a"] * 17, "a" * 1025, 3)],
        *[("logit_bias", value) for value in ({"1": 101}, {"a": 1}, {"-1": 1}, {"320": 1}, {"9" * 11: 1}, [])],
        ("logit_bias", {str(token): 1 for token in range(1025)}),
        ("stream_options", {"include_usage": True}),
        *[("response_format", value) for value in ("json", {"type": "yaml"}, {"type": "json_schema"})],
        ("model", 3),
    ],
)
def test_wrong_values_are_named(running, param, value):
    refused(running.post(COMPLETIONS, {"prompt": "a", param: value}), 400, param=param, type="invalid_request_error")


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("messages", {}),
        ("messages", {"messages": []}),
        ("messages", {"messages": [{"role": "robot", "content": "a"}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        ("messages", {"messages": HELLO * 2049}),
        ("top_logprobs", {"messages": HELLO, "top_logprobs": 2}),
        ("top_logprobs", {"messages": HELLO, "logprobs": True, "top_logprobs": 21}),
    ],
)
def test_wrong_chats(running, param, body):
    refused(running.post(CHAT, body), 400, param=param)


@pytest.mark.parametrize(
    ("param", "body"),
    [
        *[("prompt", {"prompt": value}) for value in ("", [], [""], [[]], [-1], [320], [1, "a"], None)],
        ("n", {"prompt": ["a"] * 9, "n": 2}),
        ("best_of", {"prompt": "a", "n": 3, "best_of": 2}),
        ("best_of", {"prompt": "a", "best_of": 17}),
        ("best_of", {"prompt": "a", "best_of": 2, "stream": True}),
        ("suffix", {"prompt": "a", "suffix": "b"}),
        ("echo", {"prompt": "a", "echo": True, "logprobs": 0}),
    ],
)
def test_wrong_completions(running, param, body):
    refused(running.post(COMPLETIONS, body), 400, param=param)


def test_wrong_embeddings_and_tokens(running):
    refused(running.post("/v1/embeddings", {"input": ["a"] * 257}), 400, param="input")
    refused(running.post("/v1/embeddings", {"input": "a", "dimensions": 3}), 400, param="dimensions")
    refused(running.post("/tokenize", {}), 400, param="prompt")
    refused(running.post("/detokenize", {"tokens": [320]}), 400, param="tokens")


def test_prompts_that_are_too_long(running, client):
    for path, body, param in (
        (CHAT, {"messages": [{"role": "user", "content": "word " * LONGEST}]}, "messages"),
        (COMPLETIONS, {"prompt": [5] * LONGEST}, "prompt"),
        ("/v1/embeddings", {"input": [5] * LONGEST}, "input"),
    ):
        refused(running.post(path, body), 400, param=param, code="context_length_exceeded")
    answer = client.completions.create(model="tiny", prompt=[5] * (LONGEST - 1), max_tokens=9)
    assert answer.usage.completion_tokens == 1 and answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"3", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"prompt": "\\ud800"}', b"9" * 5000]
    + [b'{"prompt": "a", "temperature": %s}' % value for value in (b"NaN", b"Infinity", b"1e999")],
    ids=lambda body: body[:20],
)
def test_bodies_that_are_no_json(running, body):
    refused(running.http.post(COMPLETIONS, content=body, headers=JSON), 400)


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{{ 'a' * 9999999999 }}", "{{ raise_exception('no') }}"])
def test_templates_that_fail(running, monkeypatch, template):
    (one,) = running.service.library.in_memory
    with monkeypatch.context() as patch:
        patch.setattr(one.opened.tokenizer, "chat_template", template)
        error = refused(running.post(CHAT, {"messages": HELLO}), 400, param="messages")
        assert error["message"].startswith("the model's chat template cannot be used: ")
        patch.setattr(one.opened.tokenizer, "chat_template", None)
        assert "has no chat template" in refused(running.post(CHAT, {"messages": HELLO}), 400)["message"]
    assert running.post(CHAT, {"messages": HELLO, "max_tokens": 1}).status_code == 200


def test_bodies_of_another_kind(running):
    refused(running.http.post(COMPLETIONS, data={"prompt": "a"}), 415)


def test_paths_and_methods_that_are_none(running, client):
    refused(running.http.get("/v1/nothing"), 404)
    refused(running.http.get(CHAT), 405)
    refused(running.post(CHAT, {"model": "other", "messages": HELLO}), 404, param="model", code="model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


@pytest.fixture(scope="module")
def strict(folder):
    limits = Limits(requests=3, requests_per_key=2, body=2000, seconds=30)
    with served({"tiny": folder}, limits=limits, keys=KEYS, origins=["https://page.example"]) as one:
        yield one.ready()


def of(name):
    return {"headers": {"Authorization": f"Bearer key-of-{name}"}}


def test_long_bodies_are_refused_while_they_are_read(strict):
    refused(strict.post(COMPLETIONS, {"prompt": "a" * 2000}, **of("alice")), 413, code="request_too_large")
    pieces = []

    def endless():
        while len(pieces) < 1000:
            pieces.append(b" " * 1000)
            yield pieces[-1]

    headers = of("alice")["headers"] | JSON
    refused(strict.http.post(COMPLETIONS, content=endless(), headers=headers), 413)
    assert strict.settled(lambda: not strict.service.admission.inside)


def test_keys(strict):
    body = {"prompt": "a", "max_tokens": 1}
    for headers in ({}, {"Authorization": "Bearer key-of-eve"}, {"Authorization": "Basic key-of-bob"}):
        for path in (CHAT, COMPLETIONS, "/v1/embeddings", "/tokenize", "/detokenize"):
            refused(strict.post(path, body, headers=headers), 401, code="invalid_api_key")
        refused(strict.http.get("/v1/models", headers=headers), 401)
        refused(strict.http.get("/v1/models/tiny", headers=headers), 401)
    for name in ("alice", "bob"):
        assert strict.post(COMPLETIONS, body, **of(name)).status_code == 200
    with openai.OpenAI(base_url=f"{strict.url}/v1", api_key="key-of-bob") as client:
        assert client.models.list().data
    for path in ("/health", "/ready", "/metrics"):
        assert strict.http.get(path).status_code == 200


def test_requests_at_a_time(strict):
    body = {"prompt": "a", "max_tokens": 2}
    with ThreadPoolExecutor(3) as threads:
        with strict.held():
            going = [threads.submit(strict.post, COMPLETIONS, body, **of("alice")) for _ in range(2)]
            assert strict.settled(lambda: strict.service.admission.inside == 2)
            reply = strict.post(COMPLETIONS, body, **of("alice"))
            assert "of this key" in refused(reply, 429, code="rate_limit_exceeded")["message"]
            going.append(threads.submit(strict.post, COMPLETIONS, body, **of("bob")))
            assert strict.settled(lambda: strict.service.admission.inside == 3)
            reply = strict.post(COMPLETIONS, body, **of("bob"))
            assert refused(reply, 429)["message"].startswith("3 requests are in progress")
            assert int(reply.headers["Retry-After"]) > 0
        assert [one.result().status_code for one in going] == [200] * 3
    assert strict.post(COMPLETIONS, body, **of("alice")).status_code == 200


def test_pages_of_other_origins(strict):
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allowed = strict.http.options(CHAT, headers=asks | {"Origin": "https://page.example"})
    assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == "https://page.example"
    other = strict.http.options(CHAT, headers=asks | {"Origin": "https://other.example"})
    assert other.status_code == 400 and "access-control-allow-origin" not in other.headers


def test_requests_that_take_too_long(folder):
    with served({"tiny": folder}, limits=Limits(seconds=1.0)) as one:
        one.ready()
        run = one.engine.runner.run
        one.engine.runner.run = lambda chunks: one.thread.join(0.05) or run(chunks)  # slowly
        body = {"prompt": "a", "max_tokens": 500, "ignore_eos": True}
        refused(one.post(COMPLETIONS, body), 504, code="timeout", type="timeout_error")
        last = one.post(COMPLETIONS, {**body, "stream": True}).text.split("\n\n")[-2]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
        assert one.settled(lambda: not one.service.admission.inside) and one.engine.stats.pages_used == 0


def test_files_of_keys(tmp_path):
    path = Path(tmp_path / "keys")
    path.write_text("# of the team\n\nalice: secret-one\nsecret-two\n")
    keys = Keys.read(path)
    assert keys.name("Bearer secret-one") == "alice" and keys.name("bearer secret-two") == "line 4"
    for text, message in (("", "has no keys"), ("short", "line 1"), ("a:secret-one\nb:secret-one", "line 2")):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            Keys.read(path)


def test_no_keys_let_everybody_in():
    assert Keys().name(None) == "" and not Keys()
