"""transformers' attention function "tilepress": over packed layer caches; torch's own where keys are tensors."""

from typing import Any

from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .attention_functions import register_attention
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
    if not isinstance(key, PackedTokens):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    unknown = [name for name in ("softcap", "s_aux", "position_bias") if options.get(name) is not None]
    if unknown or dropout:
        raise ValueError(f"packed caches know no {' or '.join(unknown) or 'dropout'}: use another cache for this model")
    layer = key.layer
    out = layer.attend(key, query, attention_mask, query.shape[-1] ** -0.5 if scaling is None else scaling)
    return out.transpose(1, 2).contiguous(), None


register_attention(ATTENTION, attention)
