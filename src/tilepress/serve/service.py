"""What a server does for each request, whatever brought it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from .admission import Admission
from .driver import Feed
from .embeddings import embed, embeddings_body
from .errors import invalid, stopping, timed_out
from .job import Job
from .keys import Keys
from .library import Library, Served
from .limits import Limits
from .prompts import chat_tokens, text_prompts, text_tokens
from .replies import EventStream, Reply, cancelled_when_gone, read_body
from .requests import Body, DetokenizeRequest, EmbeddingRequest, GenerationBody, TokenizeRequest, parse

B = TypeVar("B", bound=Body)
G = TypeVar("G", bound=GenerationBody)
Prepare = Callable[[Served, G, Limits], Awaitable[Job]]
_LAST_WORDS = 5.0  # seconds to send errors to those who were ended


class Service:
    """Models, and who may ask them for what."""

    def __init__(self, library: Library, limits: Limits, keys: Keys) -> None:
        self.library, self.limits, self.keys = library, limits, keys
        self.admission = Admission(limits)

    @property
    def ready(self) -> bool:
        """Whether the default model answers, and new requests are taken."""
        return not self.admission.closed and self.library.works and self.library.default_is_loaded

    def check_key(self, request: Request) -> str:
        return self.keys.name(request.headers.get("authorization"))

    async def generate(self, request: Request, kind: type[G], prepare: "Prepare[G]") -> Response:
        """Chats and completions. Where the answer is streamed, the request is in progress until that ends."""
        deadline = time.monotonic() + self.limits.seconds
        async with AsyncExitStack() as stack:
            async with _until(deadline):
                asked, served = await self._begin(stack, request, kind)
                job = await prepare(served, asked, self.limits)
            left = deadline - time.monotonic()
            feed = _submit(served, job, left)
            stack.callback(_note, request, feed)
            reply = Reply(job, feed, asked.model or self.library.default)
            if asked.stream:
                return EventStream(reply.events(asked.includes_usage), feed, stack.pop_all(), left)
            with cancelled_when_gone(request.receive, feed):
                return await reply.whole()

    async def embeddings(self, request: Request) -> dict[str, Any]:
        async with AsyncExitStack() as stack, _until(time.monotonic() + self.limits.seconds):
            asked, served = await self._begin(stack, request, EmbeddingRequest)
            if served.opened.module is None:
                raise invalid("model", "this server gives no embeddings: start it with --embeddings")
            if asked.dimensions is not None:
                raise invalid("dimensions", "embeddings have all their dimensions: leave it out")
            prompts = await text_prompts(served, asked.input, "input")
            vectors = await asyncio.to_thread(embed, served, prompts)
            model, tokens = asked.model or self.library.default, sum(map(len, prompts))
            return embeddings_body(vectors, model, tokens, asked.encoding_format == "base64")

    async def tokenize(self, request: Request) -> dict[str, Any]:
        async with AsyncExitStack() as stack, _until(time.monotonic() + self.limits.seconds):
            asked, served = await self._begin(stack, request, TokenizeRequest)
            if (asked.prompt is None) == (asked.messages is None):
                raise invalid("prompt", "give either prompt or messages")
            if asked.messages is not None:
                tokens = await asyncio.to_thread(chat_tokens, served, asked.messages, None)
            else:
                tokens = await text_tokens(served, asked.prompt or "", asked.add_special_tokens is not False)
            return {"count": len(tokens), "max_model_len": served.engine.longest, "tokens": list(tokens)}

    async def detokenize(self, request: Request) -> dict[str, Any]:
        async with AsyncExitStack() as stack, _until(time.monotonic() + self.limits.seconds):
            asked, served = await self._begin(stack, request, DetokenizeRequest)
            tokenizer, known = served.opened.tokenizer, served.engine.runner.vocabulary
            if any(token >= known for token in asked.tokens):
                raise invalid("tokens", f"tokens are 0 … {known - 1}")
            return {"prompt": await asyncio.to_thread(tokenizer.decode, asked.tokens)}

    async def drain(self, seconds: float) -> None:
        """No new requests; those in progress have some seconds, and end with an error then."""
        self.admission.closed = True
        if not await self.admission.emptied(seconds):
            self.library.end_all(stopping())
            await self.admission.emptied(_LAST_WORDS)

    async def _begin(self, stack: AsyncExitStack, request: Request, kind: type[B]) -> tuple[B, Served]:
        """Lets a request in, reads it, and holds its model, until the stack is closed."""
        stack.enter_context(self.admission.enter(self.check_key(request)))
        asked = parse(kind, await read_body(request, self.limits.body))
        return asked, await stack.enter_async_context(self.library.use(asked.model))


@asynccontextmanager
async def _until(deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            yield
    except TimeoutError:
        raise timed_out() from None


def _submit(served: Served, job: Job, seconds: float) -> Feed:
    try:
        return served.driver.submit(job.prompts, job.sampling, served.engine.clock() + seconds)
    except ValueError as error:
        raise invalid(None, str(error)) from None


def _note(request: Request, feed: Feed) -> None:
    """For the log."""
    request.state.tokens = (feed.prompt_tokens, feed.answer_tokens)
