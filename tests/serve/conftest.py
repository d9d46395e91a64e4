"""A tiny model with a tokenizer and a chat template, and servers of it in threads of this process."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import httpx
import openai
import pytest
import torch
from tests.evaluate.tiny import SIZES, tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tilepress.engine import Engine
from tilepress.models import load_model
from tilepress.serve.keys import Keys
from tilepress.serve.library import Library
from tilepress.serve.limits import Limits
from tilepress.serve.meter import Metrics
from tilepress.serve.opening import open_model
from tilepress.serve.options import EngineOptions
from tilepress.serve.server import Address, Server, listen
from tilepress.serve.service import Service

LONGEST = 512
CONFIG = {
    **SIZES,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 128,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}\n{% endfor %}ai:"
)
OPTIONS = EngineOptions(kv="float32", kv_memory="8 MB", keeps_module=True)
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "tiny"
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).eval()
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.3)
    model.save_pretrained(path)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session")
def loaded(folder):
    return load_model(folder)


@pytest.fixture(scope="session")
def alone(loaded):
    """An engine that serves nobody, with the server's model."""
    tokenizer = loaded.tokenizer
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    engine = Engine(loaded.model, "float32", kv_memory="8 MB", decode=lambda tokens: decode(list(tokens)))
    engine.tokenizer = tokenizer
    return engine


class Running:
    """A server in a thread. `url`: where it is. `ended`: how."""

    def __init__(self, service, address):
        self.service, self.ended = service, Future()
        self.listener = listen(address)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.http = httpx.Client(base_url=self.url, timeout=60)
        self.server = Server(service, address)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            with self.listener:
                self.ended.set_result(asyncio.run(self._main()))
        except BaseException as error:
            self.ended.set_exception(error)

    async def _main(self):
        self.loop = asyncio.get_running_loop()
        await self.server.run_until_stopped(self.listener)

    def ready(self):
        while self.http.get("/ready").status_code != 200:
            assert not self.ended.done(), self.ended.exception()
        return self

    def stop(self):
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.server.stop)

    def post(self, path, body, **options):
        return self.http.post(path, json=body, **options)

    @property
    def engine(self):
        (served,) = self.service.library.in_memory
        return served.engine

    def settled(self, condition):
        """Waits until a condition holds."""
        for _ in range(2000):
            if condition():
                return True
            threading.Event().wait(0.005)
        return False

    @contextmanager
    def held(self):
        """The engine computes nothing meanwhile."""
        gate, run = threading.Event(), self.engine.runner.run
        self.engine.runner.run = lambda chunks: gate.wait(30) and run(chunks)
        try:
            yield
        finally:
            gate.set()
            self.engine.runner.run = run


@contextmanager
def served(models, *, limits=None, keys=None, memory=None, options=OPTIONS, open=open_model, drain=5.0, origins=()):
    library = Library(models, options, Metrics(), memory, open)
    service = Service(library, limits or Limits(), Keys(keys))
    running = Running(service, Address(port=0, drain=drain, origins=origins))
    try:
        yield running
    finally:
        running.http.close()
        running.stop()
        running.thread.join(30)
        assert not running.thread.is_alive()


@pytest.fixture(scope="session")
def running(folder):
    with served({"tiny": folder}) as one:
        yield one.ready()


@pytest.fixture(scope="session")
def client(running):
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as one:
        yield one
