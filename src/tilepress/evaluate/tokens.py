"""A text as a model's tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase


def tokenize(tokenizer: PreTrainedTokenizerBase, text: str) -> Tensor:
    """The tokens of `text`, int64 [count], cut nowhere, without special ones: see `beginning` for what windows begin
    with."""
    # verbose: a text is longer than the model's context, and that is no cause for a warning here.
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    if len(ids) < 2:
        raise ValueError(f"the text has {len(ids)} token(s), and at least 2 are needed to predict one from another")
    return torch.tensor(ids)


def check_same_tokenizer(one: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase, text: str) -> None:
    """Models can be compared token by token only if `text` falls into the same tokens for both."""
    if one.get_vocab() != other.get_vocab() or not torch.equal(tokenize(one, text), tokenize(other, text)):
        raise ValueError(
            "the two models cut this text into different tokens, so their predictions cannot be compared; "
            "compare with a model that has the same tokenizer, or take the perplexity of each"
        )
