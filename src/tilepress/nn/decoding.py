"""Decoder layers of Llama-like models, one token at a time, by one native call a layer.

Where a model writes text, token after token, the many small operations around its linear layers take longer than the
packed layers themselves. `decode_natively` gives each decoder layer whose seven linear layers are packed another
`forward`: for one token of one sequence, with a cache of transformers' that grows, it computes norms, rotation,
attention and feed-forward network natively; for everything else (prompts, batches, masks, other caches, hooks) it is
the module's own. Results differ from the module's by rounding alone.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import _native
from ..kernels.linear import integer_format
from ..tiles.native import REAL_NAMES
from .linear import PackedLinear

LAYERS = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
SILU = ("SiLU", "SiLUActivation")
LEAST_ROOM = 256  # tokens
SPARE_SHARE = 2  # room for half as many tokens as there are


def decode_natively(model: nn.Module) -> int:
    """Let the decoder layers of `model` that can decode natively do so; returns how many."""
    layers = [module for module in model.modules() if type(module).__name__ in LAYERS and _linears(module)]
    for layer in layers:
        layer.forward = _Decoding(layer)
    return len(layers)


def decode_by_modules(model: nn.Module) -> None:
    """Undo `decode_natively`."""
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), _Decoding):
            del module.forward


@dataclass
class _Room:
    """Keys and values [1, heads, room, head_dim] of a sequence, the first `filled` of them in use.

    Whoever shares it sees by `filled` whether another has gone on from where it stands.
    """

    keys: Tensor
    values: Tensor
    filled: int
    size: int  # tokens that there is room for

    def serves(self, keys: Tensor) -> bool:
        """Whether these are its tokens, with room for one more."""
        return keys.shape[2] == self.filled < self.size and keys.data_ptr() == self.keys.data_ptr()


class _Decoding:
    """A decoder layer's `forward`. It runs for every layer and token, so that its checks count in microseconds."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.native: _NativeLayer | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Decoding":
        return _Decoding(memo.get(id(self.layer), self.layer))

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **options: Any,
    ) -> Tensor:
        x, embeddings = hidden_states, position_embeddings
        if attention_mask is None and embeddings is not None and _is_one_token(x) and self._takes(x, options):
            tokens = _tokens(past_key_values, self.layer.self_attn.layer_idx)
            assert self.native is not None
            if tokens is not None and self.native.fits(x, tokens, embeddings):
                return self.native.decode(x, tokens, embeddings)
        plain: Tensor = type(self.layer).forward(
            self.layer,
            x,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
            position_embeddings=position_embeddings,
            **options,
        )
        return plain

    def _takes(self, x: Tensor, options: dict[str, Any]) -> bool:
        """Whether the modules inside can be passed by, being packed as ever and watched by nobody."""
        layer = self.layer
        if layer.training or options.get("output_attentions") or "forward" in layer._modules["self_attn"].__dict__:
            return False
        if self.native is None or not self.native.is_of(x.dtype):
            linears, norms = _linears(layer), [layer.input_layernorm, layer.post_attention_layernorm]
            if not linears or any(norm.weight.dtype != x.dtype or norm.weight.shape != x.shape[-1:] for norm in norms):
                return False
            self.native = _NativeLayer(layer, linears, norms)
        return not self.native.is_watched()


class _NativeLayer:
    """The native twin of a decoder layer as its modules are now."""

    def __init__(self, layer: Any, linears: list[PackedLinear], norms: list[Any]) -> None:
        attention = layer.self_attn
        self.modules = list(layer.modules())
        self.owners = [attention._modules] * len(ATTENTION) + [layer.mlp._modules] * len(FEED_FORWARD)
        self.names = (*ATTENTION, *FEED_FORWARD)
        self.linears, self.norms = linears, norms
        self.matrices = [linear.matrix for linear in linears]
        self.biases = [linear.bias for linear in linears]
        self.activations = [linear.activations for linear in linears]
        self.weights = [norm.weight.detach() for norm in norms]
        self.addresses = [weight.data_ptr() for weight in self.weights]
        self.dtype, self.head_dim, self.hidden = self.weights[0].dtype, attention.head_dim, linears[0].in_features
        self.kv_heads = linears[1].out_features // self.head_dim
        self.floats = [None if bias is None else bias.float().contiguous() for bias in self.biases]
        self.native = _native.DecoderLayer(
            REAL_NAMES[self.dtype],
            linears[0].out_features // self.head_dim,
            self.kv_heads,
            self.head_dim,
            norms[0].variance_epsilon,
            attention.scaling,
            self.addresses[0],
            self.addresses[1],
            [self._part(index) for index in range(len(linears))],
        )

    def _part(self, index: int) -> tuple[_native.Matrix, int, int, int]:
        matrix, bias = self.matrices[index], self.floats[index]
        assert matrix is not None
        group, mantissa = integer_format(self.activations[index]) or (0, -1)
        return matrix.native, 0 if bias is None else bias.data_ptr(), group, mantissa

    def is_of(self, dtype: torch.dtype) -> bool:
        """Whether the layer still has the modules, matrices, biases and norms that this was made of."""
        for i, linear in enumerate(self.linears):
            if (
                self.owners[i][self.names[i]] is not linear
                or linear.matrix is not self.matrices[i]
                or linear._buffers["bias"] is not self.biases[i]
                or linear.activations != self.activations[i]
            ):
                return False
        for norm, address in zip(self.norms, self.addresses, strict=True):
            if norm._parameters["weight"].data_ptr() != address:
                return False
        return dtype is self.dtype

    def is_watched(self) -> bool:
        """Whether somebody has hooks in the modules."""
        for module in self.modules:  # noqa: SIM110  # any() takes twice as long
            if module._forward_hooks or module._forward_pre_hooks:
                return True
        return False

    def fits(self, x: Tensor, tokens: Any, embeddings: tuple[Tensor, Tensor]) -> bool:
        """Whether all have the sizes that native code takes for granted; a cache may be another model's."""
        if x.shape[-1] != self.hidden:
            return False
        for part in embeddings:
            if part.numel() != self.head_dim or part.dtype is not self.dtype or not part.is_contiguous():
                return False
        keys, values = tokens.keys, tokens.values
        is_ours = keys.shape == values.shape == (1, self.kv_heads, keys.shape[-2], self.head_dim)
        return is_ours and keys.dtype is values.dtype is self.dtype and keys.is_cpu and values.is_cpu

    def decode(self, x: Tensor, tokens: Any, embeddings: tuple[Tensor, Tensor]) -> Tensor:
        room = _room_of(tokens)
        y = torch.empty_like(x)
        self.native.decode(
            x.data_ptr(),
            embeddings[0].data_ptr(),
            embeddings[1].data_ptr(),
            room.keys.data_ptr(),
            room.values.data_ptr(),
            room.filled,
            room.size,
            y.data_ptr(),
            torch.get_num_threads(),
        )
        room.filled += 1
        tokens.keys = room.keys.narrow(2, 0, room.filled)
        tokens.values = room.values.narrow(2, 0, room.filled)
        return y


def _is_one_token(x: Tensor) -> bool:
    """Of one sequence, computed here and now."""
    return (
        x.ndim == 3
        and x.numel() == x.shape[-1]
        and x.is_cpu
        and x.dtype in REAL_NAMES
        and x.is_contiguous()
        and not x.requires_grad
        and not torch.compiler.is_compiling()
    )


def _tokens(cache: Any, index: int) -> Any:
    """A layer's part of a cache that grows and holds tokens already; None if it is another."""
    layers = getattr(cache, "layers", [])
    tokens: Any = layers[index] if index < len(layers) else None
    return tokens if type(tokens).__name__ == "DynamicLayer" and tokens.is_initialized else None


def _room_of(tokens: Any) -> _Room:
    """Where the cache's tokens lie, with room for one more."""
    room: _Room | None = getattr(tokens, "tilepress_room", None)
    if room is None or not room.serves(tokens.keys):
        count = tokens.keys.shape[2]
        size = count + max(LEAST_ROOM, count // SPARE_SHARE)
        room = _Room(_roomy(tokens.keys, size), _roomy(tokens.values, size), count, size)
        tokens.tilepress_room = room
    return room


def _roomy(part: Tensor, size: int) -> Tensor:
    room = part.new_empty((*part.shape[:2], size, part.shape[3]))
    room[:, :, : part.shape[2]] = part
    return room


def _linears(layer: Any) -> list[PackedLinear]:
    """The seven packed layers of a decoder layer that decodes natively; none of one that does not."""
    attention, mlp = layer.self_attn, layer.mlp
    found = [*(getattr(attention, name) for name in ATTENTION), *(getattr(mlp, name) for name in FEED_FORWARD)]
    plain = type(mlp.act_fn).__name__ in SILU and getattr(attention, "sliding_window", None) is None
    packed = all(isinstance(linear, PackedLinear) and linear.matrix is not None for linear in found)
    return found if plain and packed else []
