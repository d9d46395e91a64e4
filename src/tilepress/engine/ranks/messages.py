"""What rank 0 sends to the others, through a socket each."""

import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ..decoder import Decoder
from ..native import NativeModel, Rank
from ..packed import PackedModel
from .cut import PartModel
from .shares import Shares

PROTOCOL = 5
PLAIN = ("float32", "bf16")


@dataclass(frozen=True)
class Cache:
    """Keys and values: see `NativeModel`, for the formats that are plain, and `PackedModel`."""

    kv: str
    smoothing: str
    pages: int
    page_tokens: int
    longest: int


@dataclass(frozen=True)
class Setup:
    """How a rank computes its part, which `decoder` describes. cpus: where it runs; None is anywhere."""

    number: int
    decoder: Decoder
    shares: Shares
    cache: Cache
    threads: int
    isa: str
    cpus: list[int] | None


def runner_of(setup: Setup, model: PartModel, exchange: Any) -> NativeModel:
    """What computes a part of a model. A rank without heads has no keys and values."""
    cache, rank = setup.cache, Rank(setup.number, setup.shares.tokens, exchange)
    given: dict[str, Any] = {"longest": cache.longest, "decoder": setup.decoder, "rank": rank}
    has_heads = setup.shares.has_heads(setup.number)
    if has_heads and cache.kv not in PLAIN:
        runner: NativeModel = PackedModel(model, cache.kv, cache.pages, smoothing=cache.smoothing, **given)
    else:
        kv = cache.kv if has_heads else "none"
        runner = NativeModel(model, cache.page_tokens, cache.pages, kv=kv, **given)
    runner.threads = setup.threads
    return runner


def send(to: Connection, message: Any) -> None:
    """By pickle, and not as a Connection does it: torch would move tensors into shared memory."""
    to.send_bytes(pickle.dumps(message, PROTOCOL))


def receive(connection: Connection) -> Any:
    """EOFError if the other end is gone."""
    return pickle.loads(connection.recv_bytes())
