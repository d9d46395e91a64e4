"""Calls of tools, found in what models of several families write, and forced."""

import json

import pytest
from tests.evaluate.tiny import tiny_tokenizer
from tests.serve.conftest import HELLO

from tilepress.serve.opening import make_decoder
from tilepress.serve.tools import ToolReader, parse_calls

NAMES = {"weather", "time"}
PARIS = {"city": "Paris"}
CALLS = {
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>': [("weather", PARIS)],
    '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call><tool_call>{"name": "time"}</tool_call>':
        [("weather", PARIS), ("time", {})],
    '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}': [("weather", PARIS)],
    '{"name": "weather", "parameters": {"city": "Paris"}}': [("weather", PARIS)],
    '{"name": "weather", "parameters": {"city": "Paris"}}; {"name": "time", "parameters": {}}':
        [("weather", PARIS), ("time", {})],
    '<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}': [("weather", PARIS)],
    '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "time", "arguments": {}}]':
        [("weather", PARIS), ("time", {})],
    '[TOOL_CALLS] [{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}]': [("weather", PARIS)],
    '[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]time[ARGS]{}': [("weather", PARIS), ("time", {})],
    '[{"name": "weather", "arguments": {"city": "Paris"}}]': [("weather", PARIS)],
}  # fmt: skip
TEXTS = [
    "",
    "plain",
    "[1, 2]",
    "{",
    '{"name": "weather"',
    '{"name": "unknown", "arguments": {}}',
    '{"name": "weather", "arguments": 3}',
    '{"name": ["weather"], "arguments": {}}',
    '{"name": "weather", "arguments": {}} and more',
    "<tool_call>weather</tool_call>",
    '<tool_call>{"name": "weather"}</tool_call> and more',
    "[TOOL_CALLS]weather[ARGS]",
    "[TOOL_CALLS]",
    "<|python_tag|>print(1)",
    "[" * 100_000,
    '{"a":' * 100_000,
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"of": {"$ref": "#/$defs/Of"}},
                "required": ["of"],
                "additionalProperties": False,
                "$defs": {"Of": {"enum": ["a", "b"]}},
            },
        },
    }
    for name in ("weather", "time")
]


def read(text, size, **options):
    """What is given out in pieces, and the calls at the end."""
    reader = ToolReader(NAMES, **options)
    given = "".join(reader.add(text[at : at + size]) for at in range(0, len(text), size))
    rest, calls = reader.end()
    return given + rest, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_calls(text, size):
    assert read(text, size) == ("", CALLS[text])
    if not text.startswith(("{", "[{")):  # which are calls only where nothing stands before
        assert read(f"Let me see. {text}", size) == ("Let me see. ", CALLS[text])
    assert len(read(text, size, several=False)[1]) == 1


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_is_no_call_is_text(text):
    assert parse_calls(text, NAMES) == []
    assert read(text, 7 if len(text) < 1000 else len(text)) == (text, [])


def test_text_is_not_held_back_longer_than_it_may_be_a_call():
    reader = ToolReader(NAMES)
    assert [reader.add(piece) for piece in ("a <too", "th> b [TOOL", "_C", "APS]", "<tool_call>")] == [
        "a ", "<tooth> b ", "", "[TOOL_CAPS]", "",
    ]  # fmt: skip


def test_calls_have_ids_of_their_own():
    text = '<tool_call>{"name": "time"}</tool_call>' * 2
    assert len({call.id for call in parse_calls(text, NAMES)}) == 2


def test_special_tokens_that_begin_calls_are_part_of_the_text():
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["[TOOL_CALLS]", "<|other|>"]})
    ids = [0, *tokenizer("[TOOL_CALLS]a<|other|>b</s>")["input_ids"]]
    assert make_decoder(tokenizer)(ids) == "[TOOL_CALLS]ab"
    plain = tokenizer(" plain words")["input_ids"]
    assert make_decoder(tokenizer)(plain) == tokenizer.decode(plain, skip_special_tokens=True)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("choice", "parallel", "names"),
    [
        ({"type": "function", "function": {"name": "time"}}, True, {"time"}),
        ("required", False, {"weather", "time"}),
        ("required", True, {"weather", "time"}),
    ],
)
def test_forced_calls(client, choice, parallel, names, stream):
    ask = {"model": "tiny", "messages": HELLO, "seed": 3, "max_tokens": 400}
    ask |= {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": parallel}
    if stream:
        with client.chat.completions.create(**ask, stream=True) as chunks:
            choices = [choice for chunk in chunks for choice in chunk.choices]
        calls = [call for choice in choices for call in choice.delta.tool_calls or []]
        assert not any(choice.delta.content for choice in choices)
        assert [call.index for call in calls] == list(range(len(calls)))
        reason = choices[-1].finish_reason
    else:
        answer = client.chat.completions.create(**ask).choices[0]
        calls, reason = answer.message.tool_calls, answer.finish_reason
        assert answer.message.content is None
    assert reason == "tool_calls" and 1 <= len(calls) <= (8 if parallel and choice == "required" else 1)
    for call in calls:
        assert call.function.name in names and json.loads(call.function.arguments)["of"] in ("a", "b")


def test_tools_are_in_the_prompt_unless_none_may_be_called(client):
    def prompt_tokens(**options):
        return client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=1, **options).usage.prompt_tokens

    assert prompt_tokens(tools=TOOLS) > prompt_tokens() == prompt_tokens(tools=TOOLS, tool_choice="none")


def test_calls_and_what_tools_said_are_part_of_a_conversation(running):
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": '{"of": "a"}'}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ]
    tokens = running.post("/tokenize", {"messages": messages}).json()["tokens"]
    text = running.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert '"arguments": {"of": "a"}' in text and text.endswith("tool: noon\nai:")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": TOOLS * 65}, "tools"),
    ],
)
def test_what_is_refused(running, options, param):
    reply = running.post("/v1/chat/completions", {"messages": HELLO, **options})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param
