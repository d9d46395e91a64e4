"""Chat templates: programs that come with a model. They can read nothing, but they can loop and fill memory; so one
runs in a process of its own, with limits."""

import multiprocessing
import os
import resource
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS = 10.0
MEMORY = 256 << 20  # bytes beyond what this process has
LONGEST = 4 << 20  # bytes of the text
_FORK = multiprocessing.get_context("fork")  # any other start imports torch again, which takes seconds


class ChatTemplateError(ValueError):
    """A template that fails or does not come to an end."""


def render_chat(tokenizer: Any, turns: Sequence[Mapping[str, str]]) -> str:
    """The turns as the tokenizer's template puts them, up to where the model's next reply begins."""
    result, sender = _FORK.Pipe(duplex=False)
    worker = _FORK.Process(target=_work, args=(tokenizer, turns, sender), daemon=True)
    with warnings.catch_warnings():
        # Python warns of a fork beside threads, which may hold locks; those here wait for work and hold none.
        warnings.simplefilter("ignore", DeprecationWarning)
        worker.start()
    sender.close()
    try:
        reply = result.recv_bytes(LONGEST) if result.poll(SECONDS) else f"-it takes more than {SECONDS:g} s".encode()
    except (EOFError, OSError):
        reply = b"-it takes too much memory, or writes too much"
    finally:
        worker.kill()
        worker.join()
    if reply[:1] != b"+":
        raise ChatTemplateError(f"the model's chat template cannot be used: {reply[1:].decode()}; leave --chat out")
    return reply[1:].decode()


def _work(tokenizer: Any, turns: Sequence[Mapping[str, str]], sender: Any) -> None:
    try:
        _limit_memory()
        text = tokenizer.apply_chat_template(list(turns), add_generation_prompt=True, tokenize=False)
        sender.send_bytes(b"+" + text.encode())
    except MemoryError:
        sender.send_bytes(b"-it takes too much memory")
    except Exception as error:  # templates raise what they like
        sender.send_bytes(b"-" + " ".join(str(error).split())[:200].encode())
    except KeyboardInterrupt:
        pass  # the parent process reports it


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
