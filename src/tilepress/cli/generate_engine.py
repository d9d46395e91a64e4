"""Turns of `tilepress generate` in the engine."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from torch import Tensor

    from ..engine import Engine, Sampling
    from ..models import LoadedModel


def engine_of(loaded: "LoadedModel", kv: str | None, smoothing: str | None, **options: Any) -> "Engine | None":
    """With `lookup`, `draft`, `draft_tokens` and `ranks`; None for models and caches that transformers computes."""
    from ..engine import Engine
    from ..engine.opening import is_native
    from ..formats import FormatError

    if not is_native(loaded.model):
        return None
    try:
        return Engine(loaded.model, kv, smoothing=smoothing, decode=_decoder(loaded), **options)
    except FormatError:  # which transformers' way may take, and says what is wrong if not
        return None


def form_of(engine: "Engine | None", loaded: "LoadedModel", schema: Path | None, regex: str | None) -> Any:
    """The mask of texts that follow a schema or an expression; None for any text."""
    if schema is None and regex is None:
        return None
    from ..engine.grammar import Grammar

    if engine is None:
        raise ValueError(f"{loaded.name} is not computed by the engine, which --json-schema and --regex need")
    known = {"vocabulary": engine.runner.vocabulary, "eos": sorted(engine.eos)}
    if regex is not None:
        return Grammar.regex(regex, loaded.tokenizer, **known)
    assert schema is not None
    return Grammar.json_schema(schema.read_text("utf-8"), loaded.tokenizer, **known)


def turn_in_engine(engine: "Engine", ids: "Tensor", sampling: "Sampling", out: TextIO | None) -> "Tensor":
    """The model's new tokens [count] after ids [1, length], whose text is written as it comes. ValueError if there is
    no way to go on."""
    import torch

    stream = engine.submit(ids[0].tolist(), sampling)
    try:
        for result in stream:
            if out is not None:
                print(result.text, end="", file=out, flush=True)
    finally:
        stream.cancel()
        if out is not None:
            print(file=out, flush=True)
    if stream.error:
        raise ValueError(stream.error)
    return torch.tensor(stream.tokens)


def guesses_of(engine: "Engine | None") -> tuple[int, int]:
    """Tokens that were guessed so far, and those of them that were right."""
    return (0, 0) if engine is None else (engine.stats.guessed_tokens, engine.stats.right_tokens)


def _decoder(loaded: "LoadedModel") -> Any:
    return lambda tokens: loaded.tokenizer.decode(list(tokens), skip_special_tokens=True)
