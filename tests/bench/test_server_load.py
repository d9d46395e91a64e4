"""Clients of a server that says what it likes."""

import json
import os
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tilepress.bench.arrivals import Lengths, Load
from tilepress.bench.server_load import Clients, Server, measure_server

ONE = Load(requests=3, concurrency=1, prompt=Lengths(4, 4), tokens=Lengths(3, 3))
TOKEN = {"choices": [{"text": "a"}], "usage": None}
USAGE = {"choices": [], "usage": {"completion_tokens": 3}}


@pytest.fixture
def server():
    """What it was asked, and the events of its answers, the first of which does not count."""

    class Handler(BaseHTTPRequestHandler):
        asked, answers, metrics = [], [], "process_resident_memory_bytes 1.5e+08\n"

        def do_GET(self):
            models = json.dumps({"data": [{"id": "small"}]})
            self.answer((models if self.path == "/v1/models" else self.metrics).encode())

        def do_POST(self):
            self.asked.append(
                (self.path, self.headers, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            )
            self.answer(b"".join(self.answers[min(len(self.asked), len(self.answers)) - 1]))

        def answer(self, body):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        Handler.url = f"http://127.0.0.1:{listener.server_port}"
        yield Handler
        listener.shutdown()


def events(*values):
    return [f"data: {json.dumps(value)}\n\n".encode() for value in values] + [b"data: [DONE]\n\n"]


def test_what_it_is_asked(server, monkeypatch):
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "secret")
    server.answers.append(events(TOKEN, TOKEN, TOKEN, USAGE))
    result = measure_server(Server(server.url), ONE)
    assert (result.requests, result.answer_tokens, result.prompt_tokens, result.failed) == (3, 9, 12, 0)
    assert {name: len(values) for name, values in result.latencies.items()} == {
        "time_to_first_token": 3,
        "time_between_tokens": 6,
        "time_per_output_token": 3,
        "request_time": 3,
    }
    path, headers, body = server.asked[-1]
    assert path == "/v1/completions" and headers["Authorization"] == "Bearer secret"
    assert (body["model"], len(body["prompt"]), body["max_tokens"], body["stream"]) == ("small", 4, 3, True)
    assert len(server.asked) == 4  # one does not count
    assert result.memory_by_minutes == {1: 1.5e8}


def test_texts_that_change(server):
    server.answers += [events(TOKEN, USAGE)] * 5 + [events(TOKEN, TOKEN, USAGE)]
    result = measure_server(Server(server.url), ONE, Clients(checked=3))
    assert (result.checked, result.different, len(server.asked)) == (3, 2, 7)


def test_a_server_that_says_nothing_of_its_memory(server):
    server.answers.append(events(TOKEN, USAGE))
    server.metrics = "{}"
    assert measure_server(Server(server.url), ONE).memory_by_minutes == {}


def test_memory_by_minutes(server):
    server.answers.append(events(TOKEN, USAGE))
    result = replace(measure_server(Server(server.url), ONE), memory={0: 1.0, 59: 3.0, 61: 2.0, 150: 4.0, 301: 5.0})
    assert result.memory_by_minutes == {1: 3.0, 2: 3.0, 5: 4.0, 6: 5.0}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (events(TOKEN, {"error": {"message": "out of luck"}}), "out of luck"),
        ([b"data: {no json\n\n"], "Expecting property name"),
    ],
)
def test_answers_that_go_wrong(server, answer, reason):
    server.answers += [events(TOKEN, USAGE), events(TOKEN, USAGE), answer, events(TOKEN, USAGE)]
    result = measure_server(Server(server.url), ONE)
    assert (result.requests, result.failed) == (2, 1) and reason in result.reason


def test_no_server():
    with pytest.raises(RuntimeError, match="does not say which models it has"):
        measure_server(Server("http://127.0.0.1:9"), ONE)


def test_a_server_that_answers_nobody(server):
    server.answers.append([b"data: 7}\n\n"])
    with pytest.raises(RuntimeError, match="the server does not answer"):
        measure_server(Server(server.url), ONE)
