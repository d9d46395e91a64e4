"""Answers by OpenAI's own client: streamed, whole, and by the engine alone, all the same."""

import base64

import numpy as np
import pytest
import torch
from tests.serve.conftest import HELLO

from tilepress.engine import Sampling

CHAT_PROMPT = "user: hello\nai:"
WAYS = [
    {"temperature": 0},
    {"temperature": 1.5, "seed": 7},
    {"seed": -3, "n": 3, "extra_body": {"top_k": 20, "min_p": 0.01, "typical_p": 0.9, "repetition_penalty": 1.2}},
    {"seed": 5, "n": 2, "top_p": 0.8, "presence_penalty": 1.0, "frequency_penalty": -1.0, "logit_bias": {"80": 5}},
    {"seed": 4, "stop": ["a", "e "]},
    {"seed": 2, "extra_body": {"ignore_eos": True}, "logit_bias": {"1": 3}},
]


def alone_of(alone, prompt, way, **more):
    """The engine's answers with the same options."""
    way = {**way, **way.get("extra_body", {})}
    way.pop("extra_body", None)
    bias = {int(token): value for token, value in way.pop("logit_bias", {}).items()}
    if "seed" in way:
        way["seed"] %= 1 << 64
    options = {"temperature": 1.0, "max_tokens": 20, "logit_bias": bias, **way, **more}
    ids = alone.tokenizer(prompt, add_special_tokens=False)["input_ids"] if isinstance(prompt, str) else prompt
    stream = alone.submit(ids, Sampling(**options)).wait()
    return stream.answers, list(stream)


def gathered(chunks, text):
    """Index → (text, reason) of a stream."""
    texts, reasons = {}, {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (text(choice) or "")
            reasons[choice.index] = reasons.get(choice.index) or choice.finish_reason
    return [(texts[index], reasons[index]) for index in sorted(texts)]


@pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
def test_chats(client, alone, way):
    expected = [(one.text, one.finish_reason) for one in alone_of(alone, CHAT_PROMPT, way)[0]]
    ask = {"model": "tiny", "messages": HELLO, "max_tokens": 20, **way}
    whole = client.chat.completions.create(**ask)
    assert [(one.message.content, one.finish_reason) for one in whole.choices] == expected
    with client.chat.completions.create(**ask, stream=True) as stream:
        assert gathered(stream, lambda choice: choice.delta.content) == expected


@pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
def test_completions_of_several_prompts(client, alone, way):
    prompts = ["The first", "a second one"]
    expected = [(one.text, one.finish_reason) for prompt in prompts for one in alone_of(alone, prompt, way)[0]]
    ask = {"model": "tiny", "prompt": prompts, "max_tokens": 20, **way}
    assert [(one.text, one.finish_reason) for one in client.completions.create(**ask).choices] == expected
    with client.completions.create(**ask, stream=True) as stream:
        assert gathered(stream, lambda choice: choice.text) == expected


def test_usage(client, loaded):
    ask = {"model": "tiny", "messages": HELLO, "max_completion_tokens": 9, "n": 2, "extra_body": {"ignore_eos": True}}
    usage = client.chat.completions.create(**ask).usage
    prompt = len(loaded.tokenizer(CHAT_PROMPT)["input_ids"])
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (prompt, 18, prompt + 18)
    with client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    assert not chunks[-1].choices and chunks[-1].usage.model_dump() == usage.model_dump()
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[0].choices[0].delta.role == "assistant" and len({chunk.id for chunk in chunks}) == 1
    with client.chat.completions.create(**ask, stream=True) as stream:
        assert all(chunk.choices and chunk.usage is None for chunk in stream)


def test_a_stream_ends_as_openai_says(running):
    body = {"messages": HELLO, "max_tokens": 2, "stream": True}
    reply = running.post("/v1/chat/completions", body)
    events = reply.text.split("\n\n")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert events[-2:] == ["data: [DONE]", ""] and all(event.startswith("data: {") for event in events[:-2])


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_chats(client, alone, loaded, stream):
    _, results = alone_of(alone, CHAT_PROMPT, {"seed": 1}, logprobs=3)
    ask = {"model": "tiny", "messages": HELLO, "max_tokens": 20, "seed": 1, "logprobs": True, "top_logprobs": 3}
    if stream:
        with client.chat.completions.create(**ask, stream=True) as chunks:
            choices = [choice for chunk in chunks for choice in chunk.choices]
        content = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    else:
        content = client.chat.completions.create(**ask).choices[0].logprobs.content
    shown = [one for one in results if one.token != 1]
    for token, result in zip(content, shown, strict=True):
        assert token.token == loaded.tokenizer.decode([result.token])
        assert token.bytes is None or bytes(token.bytes).decode() == token.token
        assert token.logprob == pytest.approx(result.logprob)
        assert [one.logprob for one in token.top_logprobs] == pytest.approx([value for _, value in result.top])


def test_logprobs_of_completions(client, alone, loaded):
    _, results = alone_of(alone, "Once", {"seed": 1, "extra_body": {"ignore_eos": True}}, logprobs=2)
    ask = {"model": "tiny", "prompt": "Once", "max_tokens": 20, "seed": 1, "extra_body": {"ignore_eos": True}}
    logprobs = client.completions.create(**ask, logprobs=2).choices[0].logprobs
    texts = [loaded.tokenizer.decode([result.token]) for result in results]
    assert logprobs.tokens == texts
    assert logprobs.token_logprobs == pytest.approx([result.logprob for result in results])
    assert logprobs.text_offset == [sum(map(len, texts[:place])) for place in range(len(texts))]
    assert max(logprobs.top_logprobs[0].values()) == pytest.approx(results[0].top[0][1])
    with client.completions.create(**ask, logprobs=2, stream=True) as stream:
        parts = [choice.logprobs for chunk in stream for choice in chunk.choices if choice.logprobs]
    assert [offset for part in parts for offset in part.text_offset] == logprobs.text_offset


def test_the_best_of_several(client, alone):
    way = {"seed": 3, "n": 2, "best_of": 4}
    expected = [one.text for one in alone_of(alone, "Once", way)[0]]
    answers = client.completions.create(model="tiny", prompt="Once", max_tokens=20, **way).choices
    assert [one.text for one in answers] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_echo_and_prompts_of_tokens(client, alone, loaded, stream):
    ids = loaded.tokenizer("Once upon")["input_ids"]
    expected = alone_of(alone, ids, {"temperature": 0})[0][0].text
    ask = {"model": "tiny", "prompt": ids, "max_tokens": 20, "temperature": 0, "echo": True}
    answer = client.completions.create(**ask, stream=stream)
    text = "".join(chunk.choices[0].text for chunk in answer) if stream else answer.choices[0].text
    assert text == "Once upon" + expected


def test_completions_have_16_tokens_by_default(running):
    reply = running.post("/v1/completions", {"prompt": "a", "ignore_eos": True}).json()
    assert reply["usage"]["completion_tokens"] == 16 and reply["model"] == "tiny"


def test_contents_in_parts_and_developers(client):
    def said(messages):
        return client.chat.completions.create(model="tiny", messages=messages, max_tokens=9, seed=1).choices[0].message

    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    assert said([{"role": "user", "content": parts}]).content == said(HELLO).content
    rules = {"content": "Be short."}
    system, developer = ([{"role": role, **rules}, *HELLO] for role in ("system", "developer"))
    assert said(system).content == said(developer).content != said(HELLO).content


def test_embeddings(client, loaded):
    texts = ["one", "another text"]
    for given in (texts, [loaded.tokenizer(text)["input_ids"] for text in texts]):
        data = client.embeddings.create(model="tiny", input=given).data
        for one, text in zip(data, texts, strict=True):
            ids = loaded.tokenizer(text, return_tensors="pt")["input_ids"]
            with torch.no_grad():
                states = loaded.model(ids, output_hidden_states=True).hidden_states[-1][0]
            expected = torch.nn.functional.normalize(states.mean(0), dim=0)
            assert one.embedding == pytest.approx(expected.tolist(), abs=1e-5)
    ask = {"model": "tiny", "input": "one"}
    numbers = client.embeddings.create(**ask, encoding_format="float").data[0].embedding
    coded = client.embeddings.with_raw_response.create(**ask, encoding_format="base64").http_response.json()
    assert np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4").tolist() == pytest.approx(numbers)


def test_tokens_and_back(running, loaded):
    reply = running.post("/tokenize", {"prompt": "hello there"}).json()
    ids = loaded.tokenizer("hello there")["input_ids"]
    assert reply == {"count": len(ids), "max_model_len": 512, "tokens": ids}
    assert running.post("/detokenize", {"tokens": ids}).json() == {"prompt": "hello there"}
    chat = running.post("/tokenize", {"messages": HELLO}).json()
    assert chat["tokens"] == loaded.tokenizer(CHAT_PROMPT)["input_ids"]


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "tilepress"
