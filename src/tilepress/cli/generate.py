"""`tilepress generate`: text from a model, token by token, and talks of several turns."""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import models
from .generate_engine import engine_of, form_of, guesses_of, turn_in_engine
from .output import Json, Model, Ranks, Recorder, TextOnly, TrustRemoteCode, hush_transformers
from .stdin import prompts

if TYPE_CHECKING:
    from torch import Tensor

    from ..models import LoadedModel

_REPLY = "\N{SYMBOL FOR GROUP SEPARATOR}"  # stands for a reply where a chat template is asked what comes after one


def generate(
    model: Model,
    prompt: Annotated[
        list[str],
        typer.Argument(
            help="What the text begins with, - for standard input; more are turns, each after the model's own."
        ),
    ],
    tokens: Annotated[
        int, typer.Option(min=1, help="Tokens to generate at most in a turn; the model may take fewer.")
    ] = 64,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the likeliest token; higher ones choose more freely.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Chooses tokens where the temperature is not 0.")] = 0,
    kv: Annotated[
        str | None,
        typer.Option(
            help="KV cache: fp16, bf16, bfp8, bfp4n+rotate, sparse:k30,v50 …; what the model remembers if not given."
        ),
    ] = None,
    smoothing: Annotated[str | None, typer.Option(help="Of keys in a bfp cache: none or online.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Go on from the packed KV cache in this file, if it is there; turns save it.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--json-schema", help="A file with the JSON schema that the text is to follow.")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="What the text is to match, from beginning to end.")] = None,
    lookup: Annotated[
        int, typer.Option(min=0, help="Guess so many tokens a step from the text before; the text stays the same.")
    ] = 0,
    draft: Annotated[
        str | None,
        typer.Option(
            autocompletion=models,
            help="A smaller or more compressed model with the same vocabulary that guesses; the text stays the same.",
        ),
    ] = None,
    draft_tokens: Annotated[int, typer.Option(min=1, help="Tokens the draft guesses at most in a step.")] = 4,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompts as questions to a chat model.")] = False,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    ranks: Ranks = 1,
    json: Json = False,
) -> None:
    """Continue a prompt, printing tokens as they come; tokens a second on standard error at the end.

    Example: tilepress generate smollm2-135m "Name a river." "And its length?" --chat --kv bfp4n+rotate --cache talk
    """
    import torch
    from transformers import TextStreamer

    from ..engine import Sampling
    from ..kernels.placement import use_stored
    from ..models import load_model

    if smoothing and not kv:
        raise ValueError("--smoothing is of the cache that --kv names: name one")
    if cache is not None:
        _check_place(cache)
    if (schema or regex) and (cache or (schema and regex)):
        raise ValueError("--json-schema and --regex go neither together nor with --cache: leave one out")
    guessing = "--lookup" if lookup else "--draft" if draft else None
    needing = guessing or ("--ranks" if ranks > 1 else None)
    if needing and cache:
        raise ValueError(f"{needing} and --cache do not go together: leave one out")
    prompt = prompts(prompt)
    hush_transformers()
    use_stored()
    loaded = load_model(model, trust_remote_code=trust_remote_code, text_only=text_only)
    options = {"lookup": lookup, "draft": draft, "draft_tokens": draft_tokens, "ranks": ranks}
    engine = None if cache else engine_of(loaded, kv, smoothing, **options)
    if needing and engine is None:
        raise ValueError(f"{loaded.name} is not computed by the engine, which {needing} needs: leave it out")
    talk = _begin(loaded, kv, smoothing or "none", cache) if engine is None else _Talk()
    form = form_of(engine, loaded, schema, regex)
    torch.manual_seed(seed)
    streamer = None if json else TextStreamer(loaded.tokenizer, skip_prompt=True, skip_special_tokens=True)
    recorder = Recorder(model=model)
    try:
        for number, text in enumerate(prompt, 1):
            start, before = time.perf_counter(), guesses_of(engine)
            ids = _inputs(loaded, talk, text, chat)
            if engine is None:
                produced = _turn(loaded, talk, ids, tokens, temperature, streamer)
            else:
                how = Sampling(max_tokens=tokens, temperature=temperature, seed=seed, mask=form)
                _room(loaded, ids.shape[1])
                produced = turn_in_engine(engine, ids, how, None if json else sys.stdout)
                talk.tokens = torch.cat([ids, produced[None]], 1)
            seconds = time.perf_counter() - start
            reply = loaded.tokenizer.decode(produced, skip_special_tokens=True)
            _record(recorder, number, reply, len(produced), seconds)
            guessed, right = (now - then for now, then in zip(guesses_of(engine), before, strict=True))
            if guessing:
                _record_guesses(recorder, number, guessed, right)
            if not json:
                said = f"; {right} of {guessed} guesses right" if guessing else ""
                rate = len(produced) / seconds
                typer.echo(f"{len(produced)} tokens, {rate:.1f} a second, prompt included{said}", err=True)
            if cache is not None:
                talk.cache.save(cache, talk.tokens)
    finally:  # turns before one that failed are not lost
        if json and recorder.records:
            recorder.print_json()


def continuation(loaded: "LoadedModel", prompt: str, tokens: int) -> str:
    """The likeliest tokens after the prompt, as text."""
    talk = _Talk()
    produced = _turn(loaded, talk, _inputs(loaded, talk, prompt, chat=False), tokens, 0.0, None)
    text: str = loaded.tokenizer.decode(produced, skip_special_tokens=True)
    return text


def _check_place(path: Path) -> None:
    """ValueError if no file can be made there: before the model is loaded, not after it has said everything."""
    if path.is_dir():
        raise ValueError(f"--cache: {path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"--cache: there is no folder {path.parent}: make it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"--cache: no file can be written to {path.parent} ({error.strerror})") from error


@dataclass
class _Talk:
    """What has been said so far: tokens [1, length], and the cache of all but the last few of them."""

    tokens: "Tensor | None" = None
    cache: Any = None


def _begin(loaded: "LoadedModel", kv: str | None, smoothing: str, path: Path | None) -> _Talk:
    """With the caches that were asked for, and what the file has if it is there."""
    from ..formats.kv import parse_kv
    from ..nn.model_kv_cache import default_cache, is_packed, load_kv_cache, set_default_cache

    if kv:
        set_default_cache(loaded.model, kv, smoothing)
    if path is None:
        return _Talk()
    if path.exists():
        cache = load_kv_cache(loaded.model, path)
        if kv and cache.format != parse_kv(kv):
            raise ValueError(f"{path} holds a cache in {cache.format}, not in {kv}: leave --kv out")
        if cache.tokens is None or len(cache.tokens) != 1:
            raise ValueError(f"{path} holds no tokens of one text: it was not saved by `tilepress generate`")
        return _Talk(cache.tokens, cache)
    format = default_cache(loaded.model)
    if format is None or not is_packed(format):
        raise ValueError("--cache saves packed caches: give --kv bfp8, bfp4n+rotate or sparse:k30,v50")
    return _Talk()


def _inputs(loaded: "LoadedModel", talk: _Talk, prompt: str, chat: bool) -> "Tensor":
    """All tokens up to the model's turn: [1, length]."""
    import torch

    new: Tensor
    tokenizer = loaded.tokenizer
    if not chat:
        new = tokenizer(prompt, return_tensors="pt", add_special_tokens=talk.tokens is None)["input_ids"].long()
    elif tokenizer.chat_template is None:
        raise ValueError(f"{loaded.name} has no chat template: leave --chat out")
    else:
        text = _question(tokenizer, prompt, is_first=talk.tokens is None)
        new = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"].long()
    if not new.numel():
        raise ValueError("the prompt is empty: give at least one word")
    if talk.tokens is None:
        return new
    ended = chat and talk.tokens[0, -1] == new[0, 0]  # the model has said itself that its turn is over
    return torch.cat([talk.tokens, new[:, 1:] if ended else new], 1)


def _question(tokenizer: Any, prompt: str, is_first: bool) -> str:
    """The prompt as the tokenizer's template puts it, up to where the reply begins; not the first one with what ends
    the reply before it."""
    from ..models.chat import ChatTemplateError, render_chat

    turns = [] if is_first else [{"role": "user", "content": "?"}, {"role": "assistant", "content": _REPLY}]
    try:
        text = render_chat(tokenizer, [*turns, {"role": "user", "content": prompt}])
    except ChatTemplateError as error:
        raise ChatTemplateError(f"{error}; leave --chat out") from None
    return text if is_first else text.partition(_REPLY)[2]


def _room(loaded: "LoadedModel", prompt: int) -> int:
    """How many tokens the model can add to a prompt of so many."""
    limit: int = getattr(loaded.model.config, "max_position_embeddings", None) or sys.maxsize
    if prompt >= limit:
        raise ValueError(f"the prompt has {prompt} tokens, and the model takes {limit} at once: give a shorter one")
    return limit - prompt


def _turn(
    loaded: "LoadedModel", talk: _Talk, ids: "Tensor", tokens: int, temperature: float, streamer: Any
) -> "Tensor":
    """The model's new tokens [count], which `talk` has then."""
    import torch

    how = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    pad = loaded.tokenizer.pad_token_id
    pad = loaded.tokenizer.eos_token_id if pad is None else pad
    options = {"max_new_tokens": min(tokens, _room(loaded, ids.shape[1])), "pad_token_id": pad, "streamer": streamer}
    given = {"attention_mask": torch.ones_like(ids), "past_key_values": talk.cache, "return_dict_in_generate": True}
    try:
        output = loaded.model.generate(ids, **given, **options, **how)
    except BaseException:
        if streamer is not None and streamer.token_cache:
            streamer.end()  # it holds the last word back until it is whole
        raise
    talk.tokens, talk.cache = output.sequences, output.past_key_values
    produced: Tensor = output.sequences[0, ids.shape[1] :]
    return produced


def _record(recorder: Recorder, turn: int, text: str, count: int, seconds: float) -> None:
    recorder.add("text", text, turn=turn)
    recorder.add("tokens", count, "token", turn=turn)
    recorder.add("time", seconds, "s", turn=turn)
    recorder.add("rate", count / seconds, "token/s", turn=turn)


def _record_guesses(recorder: Recorder, turn: int, guessed: int, right: int) -> None:
    recorder.add("guessed tokens", guessed, "token", turn=turn)
    recorder.add("right guesses", right, "token", turn=turn)
