"""What needs no Ray: who is asked first, how a request and its answer travel, and what clients see of a death."""

import asyncio
import json
from collections import Counter
from contextlib import aclosing

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from tilepress.cluster import ClusterError
from tilepress.cluster.exchange import Asked, exchange
from tilepress.cluster.relay import ATTEMPTS, Relayed, ReplicaDiedError, joined, no_replica
from tilepress.cluster.replicas import Scale, parse_replicas, reason, share
from tilepress.cluster.routing import CHARACTERS, SLACK, beginning, ranked
from tilepress.serve.errors import internal
from tilepress.serve.events import event

NAMES = [f"r{number}" for number in range(8)]
KEYS = [f"key {number}" for number in range(800)]


def idle(names):
    return dict.fromkeys(names, 0)


def test_a_beginning_has_one_replica_whatever_the_order():
    for key in KEYS[:20]:
        assert ranked(key, idle(NAMES)) == ranked(key, idle(reversed(NAMES)))
        assert sorted(ranked(key, idle(NAMES))) == NAMES


def test_beginnings_are_shared_out():
    counts = Counter(ranked(key, idle(NAMES))[0] for key in KEYS)
    assert min(counts.values()) > 60 and max(counts.values()) < 140  # 100 each, and 9.4 standard deviation


def test_a_replica_that_goes_moves_its_own_beginnings_only():
    for key in KEYS:
        order = ranked(key, idle(NAMES))
        assert ranked(key, idle(NAMES[1:])) == [name for name in order if name != "r0"]


def test_a_load_is_bounded():
    """Requests with one beginning that never end: each replica has at most the bound, and the next one what is over."""
    loads = idle(NAMES)
    for _ in range(100):
        loads[ranked("hot", loads)[0]] += 1
        assert max(loads.values()) <= 1.25 * sum(loads.values()) / len(loads) + SLACK + 1
    assert loads[ranked("hot", idle(NAMES))[0]] == max(loads.values())


def test_a_replica_that_is_full_comes_last_and_without_a_beginning_the_least_loaded_is_first():
    first = ranked("key", idle(NAMES))[0]
    assert ranked("key", idle(NAMES) | {first: 50})[-1] == first
    loads = {name: number for number, name in enumerate(NAMES)}
    assert ranked("", loads) == NAMES
    assert ranked("key", {}) == []


def test_what_requests_begin_with():
    def of(**body):
        return beginning(json.dumps(body).encode())

    system, user = {"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}
    turns = [system, user, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "bye"}]
    assert of(messages=turns[:2]) == of(messages=turns) != of(messages=turns[:1])
    assert of(prompt="x" * CHARACTERS + "a") == of(prompt="x" * CHARACTERS + "b") != of(prompt="x")
    assert of(prompt=["a", "b"]) == of(prompt="a") != of(prompt="a", model="other")
    assert of(prompt=[1, 2]) == of(prompt=[[1, 2], [3]]) != of(prompt=[1, 3])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"{}", b'{"prompt": ""}', b'{"prompt": {}}', b'{"prompt": []}', b'{"messages": 3}']
)
def test_other_bodies_begin_with_nothing(body):
    assert beginning(body) == ""


@pytest.mark.parametrize("body", [b'{"messages": [3, null]}', b'{"prompt": [null]}', b'{"prompt": [[[[]]]]}', b"\xff"])
def test_bodies_that_are_wrong_do_no_harm(body):
    assert isinstance(beginning(body), str)


def test_deep_bodies_do_no_harm():
    assert isinstance(beginning(b'{"prompt":' + b"[" * 150 + b"1" + b"]" * 150 + b"}"), str)
    assert beginning(b'{"prompt":' + b"[" * 100_000) == ""


async def echo(request):
    return JSONResponse(
        {"body": (await request.body()).decode(), "path": request.url.path, "query": dict(request.query_params)},
        headers={"x-method": request.method, "x-sent": request.headers.get("x-sent", "")},
    )


async def stream(request):
    async def pieces():
        for number in range(3):
            yield f"{number}\n"

    return StreamingResponse(pieces())


APP = Starlette(routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/stream", stream)])


def carried(app):
    """The app, with each request carried to it."""

    async def relay(scope, receive, send):
        request = Request(scope, receive)
        asked = Asked.of(scope, await request.body())

        async def ask():
            async for batch in exchange(app, asked):
                for message in batch:
                    yield message

        await Relayed(ask)(scope, receive, send)

    return relay


def test_requests_and_answers_travel_unchanged():
    asked = [
        ("POST", "/echo?a=1", {"content": b"text", "headers": {"x-sent": "yes"}}),
        ("GET", "/echo", {}),
        ("GET", "/stream", {}),
        ("DELETE", "/echo", {}),
        ("GET", "/nowhere", {}),
    ]
    ours, theirs = TestClient(carried(APP)), TestClient(APP)
    for method, url, more in asked:
        one, other = ours.request(method, url, **more), theirs.request(method, url, **more)
        assert (one.status_code, one.content, one.headers) == (other.status_code, other.content, other.headers)


def test_an_app_learns_that_nobody_reads_any_more():
    told = []

    async def app(scope, receive, send):
        assert (await receive())["type"] == "http.request"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        told.append((await receive())["type"])

    async def main():
        async with aclosing(exchange(app, Asked({"method": "GET", "path": "/", "headers": []}, b""))) as messages:
            await anext(messages)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert told == ["http.disconnect"]


def test_what_comes_while_nobody_asks_comes_together():
    async def app(scope, receive, send):
        for number in range(5):
            await send(number)
            if number == 1:
                await asyncio.sleep(0.01)

    async def main():
        return [batch async for batch in exchange(app, Asked({}, b""))]

    assert asyncio.run(main()) == [[0, 1], [2, 3, 4]]


def test_what_an_app_raises_is_raised_after_what_it_sent():
    async def app(scope, receive, send):
        await send(1)
        raise OSError("no room")

    batches = []

    async def main():
        async for batch in exchange(app, Asked({}, b"")):
            batches.append(batch)

    with pytest.raises(OSError, match="no room"):
        asyncio.run(main())
    assert batches == [[1]]


START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
OPENING = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
TOKEN = event({"choices": [{"delta": {"content": '"delta":{"role":'}}]})


def piece(body, more=True):
    return {"type": "http.response.body", "body": body, "more_body": more}


def relayed(*attempts):
    """What a client gets of replicas that send these messages, one after the other asked; None: it dies."""
    left = list(attempts)

    async def ask():
        for message in left.pop(0):
            if message is None:
                raise ReplicaDiedError
            if isinstance(message, Exception):
                raise message
            yield message

    async def app(scope, receive, send):
        await Relayed(ask)(scope, receive, send)

    return TestClient(app).get("/"), left


ANSWER = [START, piece(OPENING), piece(TOKEN), piece(b"data: [DONE]\n\n"), piece(b"", False)]


def test_what_has_not_begun_is_answered_by_another():
    for dead in ([None], [START, None], [START, piece(OPENING), None]):
        reply, left = relayed(dead, ANSWER)
        assert reply.content == OPENING + TOKEN + b"data: [DONE]\n\n" and not left


def test_what_has_begun_ends_with_an_error_and_is_answered_once():
    reply, left = relayed([START, piece(OPENING), piece(TOKEN), None], ANSWER)
    assert reply.content.startswith(OPENING + TOKEN) and len(left) == 1
    error = json.loads(reply.content.removeprefix(OPENING + TOKEN).removeprefix(b"data: "))["error"]
    assert error["code"] == "replica_died" and error["type"] == "server_error"


def test_a_failure_after_the_beginning_ends_the_stream():
    reply, left = relayed([START, piece(OPENING), piece(TOKEN), internal()], ANSWER)
    assert reply.status_code == 200 and len(left) == 1
    assert reply.content == OPENING + TOKEN + event(internal().body)


def test_a_death_after_the_end_is_not_seen():
    reply, left = relayed([*ANSWER, None], ANSWER)
    assert reply.content.endswith(b"data: [DONE]\n\n") and len(left) == 1


def test_a_whole_answer_is_never_sent_in_part():
    plain = {**START, "headers": [(b"content-type", b"text/plain")]}
    reply, _ = relayed([plain, piece(b"one"), None], [plain, piece(b"two"), piece(b"three", False)])
    assert reply.content == b"twothree"


def test_replicas_that_all_die_are_an_error_of_openais_form():
    reply, left = relayed(*[[None]] * ATTEMPTS, ANSWER)
    assert reply.status_code == 503 and reply.json()["error"]["code"] == "replica_died" and len(left) == 1
    assert reply.headers["Retry-After"] == "1"
    reply, _ = relayed([no_replica()], ANSWER)
    assert reply.status_code == 503 and reply.json()["error"]["code"] == "no_replica"


def test_metrics_of_replicas_are_told_apart():
    def page(value):
        registry = CollectorRegistry()
        Gauge("tilepress:load", "Of an engine.", ["model_name"], registry=registry).labels("a").set(value)
        return generate_latest(registry).decode()

    text = joined({"one": page(1), "two": page(2)}).decode()
    assert 'tilepress:load{model_name="a",replica="one"} 1.0' in text
    assert 'tilepress:load{model_name="a",replica="two"} 2.0' in text
    assert text.count("# TYPE") == 1 and joined({}) == b""


@pytest.mark.parametrize("text, numbers", {"1": (1, 1), "2:5": (2, 5)}.items())
def test_numbers_of_replicas(text, numbers):
    assert parse_replicas(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1:", ":2", "1:b", "-1", "1.5"])
def test_wrong_numbers_of_replicas(text):
    with pytest.raises(ValueError, match="--replicas is MIN or MIN:MAX"):
        parse_replicas(text)


@pytest.mark.parametrize("numbers", [(0, 1), (3, 2)])
def test_impossible_numbers_of_replicas(numbers):
    with pytest.raises(ValueError, match="there is at least 1 replica"):
        Scale(*numbers)


def test_threads_are_a_share_of_the_cluster():
    assert share([8], Scale(2, 2)) == 4 and share([8, 8], Scale(1, 1)) == 8 and share([2], Scale(1, 4)) == 1
    assert share([0, 4], Scale(1, 2, threads=3)) == 3
    for cpus, scale in (([2], Scale(3, 3)), ([2, 2], Scale(1, 1, threads=3)), ([], Scale())):
        with pytest.raises(ClusterError, match=r"the cluster has room for \d replicas of \d threads, not for"):
            share(cpus, scale)


def test_why_replicas_do_not_start_is_one_sentence():
    failure = (
        "Deploying application tilepress failed: Failed to update the deployments ['Replica'].\nThe replicas failed:\n"
        "ray::ServeReplica:tilepress:Replica\nTraceback (most recent call last):\n  File x\nValueError: inner\n\nThe "
        "above exception was the direct cause of:\n\nRuntimeError: there is no model 'a': give a folder\n\n"
    )
    assert reason(failure) == "no replica starts: there is no model 'a': give a folder"
    assert reason("something else\nof Ray") == "no replica starts: something else"
