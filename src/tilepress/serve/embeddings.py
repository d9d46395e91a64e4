"""`/v1/embeddings`: the mean of a text's last hidden states, of length 1."""

import base64
from collections.abc import Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from .library import Served
from .prompts import Prompt

_COMPUTING = Lock()


def embed(served: Served, prompts: Sequence[Prompt]) -> list[Tensor]:
    """float32 [hidden] of each, by transformers' own modules, one after another."""
    module = served.opened.module
    with _COMPUTING, torch.inference_mode():
        return [_mean(module, prompt) for prompt in prompts]


def _mean(module: Any, prompt: Prompt) -> Tensor:
    states = module.base_model(input_ids=torch.tensor([list(prompt)]), use_cache=False).last_hidden_state
    return torch.nn.functional.normalize(states[0].float().mean(0), dim=0)


def embeddings_body(vectors: Sequence[Tensor], model: str, tokens: int, in_base64: bool) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": place, "embedding": _written(vector, in_base64)}
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _written(vector: Tensor, in_base64: bool) -> str | list[float]:
    """In base64, the bytes of little-endian float32."""
    return base64.b64encode(vector.numpy().astype("<f4").tobytes()).decode() if in_base64 else vector.tolist()
