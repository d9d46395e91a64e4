"""Clients that go, read slowly or not at all; servers that stop."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from types import SimpleNamespace

import httpx
import pytest
from tests.serve.conftest import HELLO, OPTIONS, served

from tilepress.serve.keys import Keys
from tilepress.serve.library import Library
from tilepress.serve.limits import Limits
from tilepress.serve.meter import Metrics
from tilepress.serve.replies import EventStream
from tilepress.serve.server import Address, listen, serve
from tilepress.serve.service import Service

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
LONG = {"prompt": "a", "max_tokens": 500, "ignore_eos": True}


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_go_release_their_pages(running, stream):
    before = running.engine.stats.answer_tokens
    with running.held():
        with socket.create_connection(running.listener.getsockname()) as client:
            body = json.dumps({**LONG, "stream": stream}).encode()
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            assert running.settled(lambda: running.engine.requests.running == 1)
        running.settled(lambda: running.engine._cancelled)
    assert running.settled(lambda: running.engine.idle and not running.service.admission.inside)
    assert running.engine.stats.pages_used == 0
    assert running.engine.stats.answer_tokens - before < 100


def test_clients_that_go_while_they_send_are_forgotten(running):
    with socket.create_connection(running.listener.getsockname()) as client:
        client.sendall(HEAD + b"Content-Length: 99\r\n\r\n{")
        assert running.settled(lambda: running.service.admission.inside == 1)
    assert running.settled(lambda: running.service.admission.inside == 0)


def test_slow_readers_hold_nobody_up(running):
    """A stream that is not read, and the engine is through with it all the same; then it is all there."""
    with running.http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as slow:
        assert running.post("/v1/completions", {"prompt": "b", "max_tokens": 3}).status_code == 200
        assert running.settled(lambda: running.engine.idle)
        events = [line for line in slow.iter_lines() if line]
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"


def test_clients_that_do_not_read_have_no_more_time_than_their_requests():
    ended = []

    async def events():
        yield b"data: {}"

    async def never(*_):
        await asyncio.Event().wait()

    async def main():
        stack = AsyncExitStack()
        stack.callback(ended.append, "slot")
        feed = SimpleNamespace(finished=False, cancel=lambda: ended.append("feed"))
        with pytest.raises(TimeoutError):
            await EventStream(events(), feed, stack, -9.9)({}, never, never)

    asyncio.run(main())
    assert ended == ["feed", "slot"]


def test_bugs_are_answered_and_logged(running, monkeypatch, caplog):
    monkeypatch.setattr(running.service, "tokenize", lambda request: 1 / 0)
    reply = running.post("/tokenize", {"prompt": "a"})
    assert reply.status_code == 500 and reply.json()["error"]["type"] == "server_error"
    assert running.settled(lambda: "ZeroDivisionError" in caplog.text)


def test_many_at_a_time_are_answered_as_alone(running):
    bodies = [{"prompt": f"number {one}", "max_tokens": 12, "seed": one} for one in range(24)]
    alone = [running.post("/v1/completions", body).json()["choices"] for body in bodies]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda body: running.post("/v1/completions", body).json()["choices"], bodies))
    assert together == alone


def test_requests_in_progress_end_before_a_server_stops(folder):
    with served({"tiny": folder}) as one, ThreadPoolExecutor(1) as threads:
        one.ready()
        with one.held():
            going = threads.submit(one.post, "/v1/completions", {"prompt": "a", "max_tokens": 3})
            assert one.settled(lambda: one.engine.requests.running == 1)
            one.stop()
            assert one.settled(lambda: one.service.admission.closed)
            assert one.http.get("/ready").status_code == 503 and one.http.get("/health").status_code == 200
            late = one.post("/v1/completions", {"prompt": "a"})
            assert late.status_code == 503 and late.json()["error"]["code"] == "stopping"
            assert "Retry-After" in late.headers
        assert going.result().json()["usage"]["completion_tokens"] <= 3
        one.thread.join(20)
        assert one.ended.result(0) is None


def test_requests_that_do_not_end_in_time_are_told(folder):
    with served({"tiny": folder}, drain=0.2) as one, ThreadPoolExecutor(2) as threads:
        one.ready()
        with one.held():
            chat = {"messages": HELLO, "stream": True}
            going = [
                threads.submit(one.post, "/v1/completions", {"prompt": "a"}),
                threads.submit(one.post, "/v1/chat/completions", chat),
            ]
            assert one.settled(lambda: sum(one.engine.requests) == 2)
            one.stop()
            whole, streamed = (reply.result() for reply in going)
        assert whole.status_code == 503 and whole.json()["error"]["code"] == "stopping"
        last = streamed.text.split("\n\n")[-2].removeprefix("data: ")
        assert json.loads(last)["error"]["code"] == "stopping"


def test_an_engine_that_fails_is_not_healthy(folder, monkeypatch):
    with served({"tiny": folder}) as one:
        one.ready()
        monkeypatch.setattr(one.engine.scheduler, "schedule", lambda: 1 / 0)
        reply = one.post("/v1/completions", {"prompt": "a"})
        assert reply.status_code == 500 and reply.json()["error"]["type"] == "server_error"
        assert one.post("/v1/completions", {"prompt": "a"}).status_code == 500
        assert one.http.get("/health").status_code == 503 and one.http.get("/ready").status_code == 503


def test_a_step_that_fails_ends_its_requests_alone(running):
    run = running.engine.runner.run
    running.engine.runner.run = lambda chunks: 1 / 0
    assert running.post("/v1/completions", {"prompt": "a"}).status_code == 500
    running.engine.runner.run = run
    assert running.post("/v1/completions", {"prompt": "a"}).status_code == 200


def asked_and_stopped(url, stop, **headers):
    """A stream that is begun, then a signal; the stream's events."""
    body = {"model": "tiny", "prompt": "a secret prompt", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, headers=headers, timeout=60) as reply:
        lines = reply.iter_lines()
        next(lines)
        stop()
        return [line for line in lines if line]


@contextmanager
def started(folder, *options, port=0):
    """(process, address) of the command as a user types it."""
    command = [sys.executable, "-m", "tilepress", "serve", "--alias", f"tiny={folder}", "--port", str(port)]
    command += ["--kv", "float32", "--kv-memory", "8 MB", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stderr.readline().removeprefix("serving on ").strip()
        finally:
            process.kill()


def test_killed_and_started_again(folder):
    """At the same address, where the same question has the same answer."""
    body = {"prompt": "a", "max_tokens": 8, "temperature": 0}
    with started(folder) as (process, url):
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()["choices"]
        with pytest.raises(httpx.RemoteProtocolError):
            asked_and_stopped(url, process.kill)
    with started(folder, port=int(url.rpartition(":")[2])) as (process, again):
        assert again == url
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()["choices"] == answer


def test_an_interrupt(folder, tmp_path):
    """The answer that is begun comes to its end, then the process."""
    keys = tmp_path / "keys"
    keys.write_text("me: a-secret-key\n")
    with started(folder, "--json", "--api-key-file", str(keys)) as (process, url):
        stop = partial(process.send_signal, signal.SIGINT)
        events = asked_and_stopped(url, stop, Authorization="Bearer a-secret-key")
        log = process.stderr.read()
        assert process.wait(30) == 0 and events[-1] == "data: [DONE]", log
    line = json.loads(log.strip().splitlines()[-1])
    assert (line["path"], line["status"], line["answer_tokens"]) == ("/v1/completions", 200, 200)
    assert "secret" not in log


def test_a_signal_to_terminate(folder, capsys):
    """In this process, whose main thread serves."""
    service = Service(Library({"tiny": folder}, OPTIONS, Metrics()), Limits(), Keys())
    with listen(Address(port=0)) as probe:
        port = probe.getsockname()[1]
    events = []

    def client():
        while service.library.engines == {}:
            threading.Event().wait(0.01)
        events.extend(asked_and_stopped(f"http://127.0.0.1:{port}", partial(os.kill, os.getpid(), signal.SIGTERM)))

    thread = threading.Thread(target=client)
    thread.start()
    serve(service, Address(port=port))
    thread.join()
    assert events[-1] == "data: [DONE]" and capsys.readouterr().err.startswith(f"serving on http://127.0.0.1:{port}")


def test_a_port_that_is_taken():
    with listen(Address(port=0)) as one, pytest.raises(OSError, match="Address already in use"):
        listen(Address(port=one.getsockname()[1]))


def test_requests_leave_nothing_behind(running):
    """Tasks, threads and feeds."""
    for stream in (False, True):
        running.post("/v1/completions", {"prompt": "a", "max_tokens": 2, "stream": stream})
    (one,) = running.service.library.in_memory
    assert running.settled(lambda: not one.driver._feeds)
    tasks = asyncio.run_coroutine_threadsafe(_tasks(), running.loop).result(5)
    assert not [task for task in tasks if "_watch" in str(task)]
    assert threading.active_count() < 40


async def _tasks():
    await asyncio.sleep(0.05)
    return asyncio.all_tasks()
