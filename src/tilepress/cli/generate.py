"""`tilepress generate`: text from a model, token by token."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, Recorder, hush_transformers

if TYPE_CHECKING:
    from torch import Tensor

    from ..models import LoadedModel


def generate(
    model: Annotated[str, typer.Argument(help="A model's folder, a GGUF file, smollm2-135m, or a name on the hub.")],
    prompt: Annotated[str, typer.Argument(help="What the text begins with.")],
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to generate at most; the model may take fewer.")] = 64,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the likeliest token; higher ones choose more freely.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Chooses tokens where the temperature is not 0.")] = 0,
    kv: Annotated[
        str | None, typer.Option(help="KV cache: fp16, bf16, bfp8, bfp4 …; what the model remembers if not given.")
    ] = None,
    smoothing: Annotated[str, typer.Option(help="Of keys in a bfp cache: none or online.")] = "none",
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt as a question to a chat model.")] = False,
    json: Json = False,
) -> None:
    """Continue a prompt, printing tokens as they come; tokens a second on standard error at the end.

    Example: tilepress generate smollm2-135m "The capital of France is" --tokens 16
    """
    import torch
    from transformers import TextStreamer

    from ..models import load_model
    from ..nn.kv_cache import set_default_cache

    hush_transformers()
    loaded = load_model(model)
    if kv:
        set_default_cache(loaded.model, kv, smoothing)
    inputs = _inputs(loaded, prompt, chat)
    room = _room(loaded, inputs["input_ids"].shape[1])
    torch.manual_seed(seed)
    streamer = None if json else TextStreamer(loaded.tokenizer, skip_prompt=True, skip_special_tokens=True)
    start = time.perf_counter()
    produced = _generate(loaded, inputs, min(tokens, room), temperature, streamer)
    seconds = time.perf_counter() - start
    if json:
        text = loaded.tokenizer.decode(produced, skip_special_tokens=True)
        _print_json(text, len(produced), seconds)
    else:
        typer.echo(f"{len(produced)} tokens, {len(produced) / seconds:.1f} a second, prompt included", err=True)


def _inputs(loaded: "LoadedModel", prompt: str, chat: bool) -> Any:
    """Token ids and attention mask, [1, length] each."""
    tokenizer = loaded.tokenizer
    if not chat:
        inputs = tokenizer(prompt, return_tensors="pt")
    elif tokenizer.chat_template is None:
        raise ValueError(f"{loaded.name} has no chat template: leave --chat out")
    else:
        question = [{"role": "user", "content": prompt}]
        inputs = tokenizer.apply_chat_template(
            question, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
    if not inputs["input_ids"].numel():
        raise ValueError("the prompt is empty: give at least one word")
    return inputs


def _room(loaded: "LoadedModel", prompt: int) -> int:
    """How many tokens the model can add to a prompt of so many."""
    limit: int = getattr(loaded.model.config, "max_position_embeddings", None) or sys.maxsize
    if prompt >= limit:
        raise ValueError(f"the prompt has {prompt} tokens, and the model takes {limit} at once: give a shorter one")
    return limit - prompt


def _generate(loaded: "LoadedModel", inputs: Any, tokens: int, temperature: float, streamer: Any) -> "Tensor":
    """The new tokens [count]."""
    how = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    pad = loaded.tokenizer.pad_token_id
    pad = loaded.tokenizer.eos_token_id if pad is None else pad
    options = {"max_new_tokens": tokens, "pad_token_id": pad, "streamer": streamer, **how}
    produced: Tensor = loaded.model.generate(ids, attention_mask=mask, **options)
    return produced[0, ids.shape[1] :]


def _print_json(text: str, count: int, seconds: float) -> None:
    recorder = Recorder()
    recorder.add("text", text)
    recorder.add("tokens", count, "token")
    recorder.add("time", seconds, "s")
    recorder.add("speed", count / seconds, "token/s")
    recorder.print_json()
