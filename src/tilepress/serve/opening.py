"""A model's name to an engine that serves it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._sizes import size_in_bytes
from ..engine import Engine
from ..models import load_model
from .options import EngineOptions

TOOL_MARKS = (
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<tool_call>",
    "</tool_call>",
)  # special tokens, in some models


@dataclass(frozen=True)
class Opened:
    """A model in memory. module: of transformers, if it was kept. nbytes: of weights and all pages it may take."""

    engine: Engine
    tokenizer: Any
    module: Any
    nbytes: int


def open_model(name: str, options: EngineOptions) -> Opened:
    """ValueError, OSError or RuntimeError if it cannot be served."""
    loaded = load_model(name, trust_remote_code=options.trust_remote_code, text_only=options.text_only)
    engine = Engine(
        loaded.model,
        options.kv,
        kv_memory=options.kv_memory,
        smoothing=options.smoothing,
        threads=options.threads,
        ranks=options.ranks,
        lookup=options.lookup,
        longest=options.longest,
        max_sequences=options.max_sequences,
        decode=make_decoder(loaded.tokenizer),
    )
    nbytes = _weight_bytes(loaded.model) + engine.pool.pages * engine.runner.page_bytes
    return Opened(engine, loaded.tokenizer, loaded.model if options.keeps_module else None, nbytes)


def expected_bytes(name: str, options: EngineOptions) -> int:
    """What a model will take, before it is loaded: its files, if they are here, and its pages."""
    path = Path(name)
    files = [path] if path.is_file() else [*path.glob("*.safetensors")] if path.is_dir() else []
    return sum(file.stat().st_size for file in files) + size_in_bytes(options.kv_memory)


def _weight_bytes(model: Any) -> int:
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


def make_decoder(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Without special tokens, except those that begin a call of a tool."""
    added = tokenizer.added_tokens_decoder
    hidden = {number for number, token in added.items() if token.special and str(token) not in TOOL_MARKS}
    return lambda tokens: str(tokenizer.decode([one for one in tokens if one not in hidden]))
