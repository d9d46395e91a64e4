"""transformers' attention function "tilepress": over packed layer caches; plain attention where keys are tensors."""

from typing import Any

from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ..kernels.attention_reference import PLAIN
from .attention_functions import attend_plainly, register_attention, softmax_of
from .layer_kv_cache import PackedTokens

ATTENTION = "tilepress"


def attention(
    module: nn.Module,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """query [batch, query heads, new, channels]: [batch, new, query heads, channels]."""
    softmax = softmax_of(options)
    is_packed = isinstance(key, PackedTokens)
    if not is_packed and softmax is PLAIN:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    unknown = ["position_bias"] if options.get("position_bias") is not None else []
    if unknown or dropout:
        raise ValueError(f"packed caches know no {' or '.join(unknown) or 'dropout'}: use another cache for this model")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if is_packed:
        out = key.layer.attend(key, query, attention_mask, scaling, softmax)
    else:
        out = attend_plainly(query, key, value, attention_mask, scaling, softmax)
    return out.transpose(1, 2).contiguous(), None


register_attention(ATTENTION, attention)
