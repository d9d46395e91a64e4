"""Answers of a given form, and forms that are none."""

import json
import time

import pytest
from tests.serve.conftest import HELLO

from tilepress.serve import forms

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "is_big": {"type": "boolean"}},
    "required": ["city", "is_big"],
    "additionalProperties": False,
}


def form(schema):
    return {"type": "json_schema", "json_schema": {"name": "form", "schema": schema, "strict": True}}


@pytest.mark.parametrize("seed", range(3))
def test_a_schema(client, seed):
    ask = {"model": "tiny", "messages": HELLO, "seed": seed, "max_tokens": 200, "response_format": form(SCHEMA)}
    answer = json.loads(client.chat.completions.create(**ask).choices[0].message.content)
    assert answer["city"] in ("Paris", "Rome") and isinstance(answer["is_big"], bool) and len(answer) == 2


def test_a_schema_of_a_completion(running):
    body = {"prompt": "JSON:", "max_tokens": 200, "response_format": form(SCHEMA), "n": 2}
    for choice in running.post("/v1/completions", body).json()["choices"]:
        assert json.loads(choice["text"])["city"] in ("Paris", "Rome")


def test_any_object(client):
    ask = {"model": "tiny", "messages": HELLO, "seed": 1, "max_tokens": 20, "response_format": {"type": "json_object"}}
    assert client.chat.completions.create(**ask).choices[0].message.content.startswith("{")
    ask["response_format"] = {"type": "text"}
    assert client.chat.completions.create(**ask).choices[0].message.content


DEEP = {"type": "object"}
for _ in range(60):
    DEEP = {"type": "object", "properties": {"a": DEEP}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "colour"},
        {"$ref": "#"},
        {"enum": []},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"$ref": "http://localhost:1/x"},
        {"type": "string", "pattern": "("},
        {"not": {}},
        {"enum": ["x" * 70_000]},
    ],
    ids=str,
)
def test_schemas_that_no_answer_can_follow(running, schema):
    schema_text = str(schema)
    reply = running.post("/v1/chat/completions", {"messages": HELLO, "response_format": form(schema)})
    error = reply.json()["error"]
    assert reply.status_code == 400 and error["param"] == "response_format" and len(error["message"]) < 400, schema_text
    assert "schema" in error["message"] and "\n" not in error["message"]


NEXT = {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
LIST = {"type": "object", "properties": {"next": NEXT}, "required": ["next"], "additionalProperties": False}


@pytest.mark.parametrize("schema", [DEEP, LIST], ids=["deep", "list"])
def test_deep_and_recursive_schemas(running, schema):
    body = {"messages": HELLO, "response_format": form(schema), "max_tokens": 30, "seed": 1}
    choice = running.post("/v1/chat/completions", body).json()["choices"][0]
    if choice["finish_reason"] == "stop":
        json.loads(choice["message"]["content"])
    begin = '{"a":{"a":{' if schema is DEEP else '{"next":'
    assert choice["message"]["content"].startswith(begin)


def test_a_schema_that_no_finite_answer_can_follow(running):
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    reply = running.post("/v1/chat/completions", {"messages": HELLO, "response_format": form(schema)})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "response_format"


def test_a_schema_that_takes_too_long(running, monkeypatch):
    monkeypatch.setattr(forms, "SECONDS", 0.05)
    monkeypatch.setattr(forms.Forms, "_grammar", lambda self, text: time.sleep(0.3))
    body = {"messages": HELLO, "response_format": form(SCHEMA | {"title": "slow"})}
    reply = running.post("/v1/chat/completions", body)
    assert reply.status_code == 400 and "takes more than 0.05 s" in reply.json()["error"]["message"]


def test_an_answer_that_cannot_go_on_ends_with_an_error(running, monkeypatch):
    """After some tokens: the grammar itself fails."""
    grammar = forms.Grammar
    call = grammar.__call__

    def failing(self, tokens):
        if len(tokens) > 2:
            raise ValueError("the grammar cannot go on")
        return call(self, tokens)

    monkeypatch.setattr(grammar, "__call__", failing)
    body = {"messages": HELLO, "response_format": form(SCHEMA)}
    reply = running.post("/v1/chat/completions", body)
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "response_format"
    last = running.post("/v1/chat/completions", {**body, "stream": True}).text.split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: "))["error"]["param"] == "response_format"
