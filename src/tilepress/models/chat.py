"""Chat templates: programs that come with a model. They can read nothing, but they can loop and fill memory; so they
run in a process of their own, with limits."""

import json
import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

SECONDS = 10.0
MEMORY = 256 << 20  # bytes beyond what this process has
LONGEST = 4 << 20  # bytes of the text
_FORK = multiprocessing.get_context("fork")  # any other start imports torch again, which takes seconds
_TOO_MUCH = b"!it takes too much memory, or writes too much"


class ChatTemplateError(ValueError):
    """A template that fails or does not come to an end."""


def render_chat(tokenizer: Any, turns: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """The turns as the tokenizer's template puts them, up to where the model's next reply begins. Options go to the
    template, `tools` say."""
    renderer = ChatRenderer()
    try:
        return renderer.render(tokenizer, turns, **options)
    finally:
        renderer.close()


class ChatRenderer:
    """Renders one chat after another, for any thread. The process is forked by `start`, early, while this one is
    small; anew when it is needed after a template that did not come to an end."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._worker: Any = None
        self._pipe: Any = None

    def start(self) -> None:
        if self._worker is not None and self._worker.is_alive():
            return
        self._pipe, theirs = _FORK.Pipe()
        self._worker = _FORK.Process(target=_work, args=(theirs,), daemon=True)
        with warnings.catch_warnings():
            # Python warns of a fork beside threads, which may hold locks; those here wait for work and hold none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._worker.start()
        theirs.close()

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.join()
            self._pipe.close()

    def render(self, tokenizer: Any, turns: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """See `render_chat`."""
        try:
            template = tokenizer.get_chat_template(tools=options.get("tools"))
        except ValueError as error:  # several, and none of them the default
            raise ChatTemplateError(str(error)) from error
        options = {**tokenizer.special_tokens_map, **options, "chat_template": template}
        job = json.dumps([list(turns), options], default=str).encode()
        with self._lock:
            reply = self._reply(job)
            if reply[:1] == b"!":
                self.close()
        if reply[:1] != b"+":
            raise ChatTemplateError(f"the model's chat template cannot be used: {reply[1:].decode()}")
        return reply[1:].decode()

    def _reply(self, job: bytes) -> bytes:
        """A text after `+`; what went wrong after `-`; after `!` if the process is of no use any more."""
        self.start()
        try:
            self._pipe.send_bytes(job)
            if not self._pipe.poll(SECONDS):
                return f"!it takes more than {SECONDS:g} s".encode()
            reply: bytes = self._pipe.recv_bytes(LONGEST)
            return reply
        except (EOFError, OSError):
            return _TOO_MUCH


def _work(pipe: Any) -> None:
    """Until the other end is closed. Files and signals are the other process's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    _close_files(keep=pipe.fileno())
    _limit_memory()
    while True:
        try:
            job = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        pipe.send_bytes(_rendered(job))


def _rendered(job: bytes) -> bytes:
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        turns, options = json.loads(job)
        rendered: Any = render_jinja_template([turns], add_generation_prompt=True, **options)  # texts, and more
        return b"+" + str(rendered[0][0]).encode()
    except MemoryError:
        return _TOO_MUCH
    except Exception as error:  # templates raise what they like
        return b"-" + " ".join(str(error).split())[:200].encode()


def _close_files(keep: int) -> None:
    """Connections of a server say, which would not end for their clients as long as somebody has them open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != keep:
            with suppress(OSError):  # the listing's own
                os.close(int(name))


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
