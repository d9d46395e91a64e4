"""The process that renders chat templates: one for many chats, and a new one after a template that is hostile.
tests/attacks/test_bombs.py has the templates."""

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.models import tiny
from tilepress.models import chat

TEMPLATE = "{{ bos_token }}{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}{% endfor %}"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def renderer():
    one = chat.ChatRenderer()
    yield one
    one.close()


def tokenizer(template=TEMPLATE):
    one = tiny.tokenizer()
    one.chat_template = template
    return one


def say(renderer, text, template=TEMPLATE, **options):
    return renderer.render(tokenizer(template), [{"role": "user", "content": text}], **options)


def test_many_chats_have_one_process(renderer):
    renderer.start()
    process = renderer._worker.pid
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(lambda number: say(renderer, f"żółw {number}"), range(40)))
    assert said == [f"<bos>żółw {number}" for number in range(40)]
    assert renderer._worker.pid == process


def test_tools_are_what_transformers_makes_of_them(renderer):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    turns = [{"role": "user", "content": "a"}]
    expected = tokenizer().apply_chat_template(turns, tools=tools, tokenize=False)
    assert say(renderer, "a", tools=tools) == expected != say(renderer, "a")


def test_a_template_that_does_not_end_takes_no_other_with_it(renderer, monkeypatch):
    monkeypatch.setattr(chat, "SECONDS", 0.5)
    for template in (LOOP, "{{ 'a' * 9999999999 }}"):
        with pytest.raises(chat.ChatTemplateError, match="it takes"):
            say(renderer, "a", template)
        assert renderer._worker is None
        monkeypatch.setattr(chat, "SECONDS", 10.0)
        assert say(renderer, "b") == "<bos>b"
    process = renderer._worker.pid
    with pytest.raises(chat.ChatTemplateError, match="division by zero"):
        say(renderer, "a", "{{ 1 / 0 }}")
    assert say(renderer, "b") == "<bos>b" and renderer._worker.pid == process


def test_several_templates_without_a_default(renderer):
    with pytest.raises(chat.ChatTemplateError, match="multiple chat templates"):
        say(renderer, "a", {"one": TEMPLATE, "two": TEMPLATE})


def test_a_process_that_was_killed_is_replaced(renderer):
    assert say(renderer, "a") == "<bos>a"
    os.kill(renderer._worker.pid, signal.SIGKILL)
    renderer._worker.join()
    assert say(renderer, "b") == "<bos>b"


def test_connections_end_where_this_process_ends_them(renderer):
    """A process that had them, too, would keep them open."""
    one, other = socket.socketpair()
    with one, other:
        renderer.start()
        assert say(renderer, "a") == "<bos>a"
        one.close()
        other.settimeout(10)
        assert other.recv(1) == b""
