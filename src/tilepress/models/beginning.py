"""The token that every text of a model begins with: Gemma's predictions mean little without it."""

from typing import Any

import torch
from torch import Tensor


def beginning(tokenizer: Any, wanted: bool | None = None) -> int | None:
    """The tokenizer's token for the beginning of a text, None where there is to be none. `wanted`: whether there is to
    be one; if not given, where the tokenizer puts one before each text by itself."""
    token = tokenizer.bos_token_id
    if wanted and token is None:
        raise ValueError("this model's tokenizer has no token for the beginning of a text; leave --bos out")
    if wanted is None and token is not None:
        wanted = tokenizer("").input_ids[:1] == [token]
    return int(token) if wanted else None


def begun(row: Tensor, begin: int | None) -> Tensor:
    """The tokens `row` [count], or [batch, count], after `begin` if there is one."""
    if begin is None:
        return row
    return torch.cat([torch.full((*row.shape[:-1], 1), begin, dtype=row.dtype), row], -1)
