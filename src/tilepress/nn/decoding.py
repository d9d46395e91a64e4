"""Llama-like models, one token at a time, all their decoder layers by one native call.

Where a model writes text, token after token, the many small operations around its linear layers take longer than the
packed layers themselves. `decode_natively` gives a model whose decoder layers are packed, all seven linear layers of
each, another `forward`: for one token of one sequence, with a cache of transformers' that grows, norms, rotation,
attention and feed-forward networks of all layers are computed natively; for everything else (prompts, batches, masks,
other caches, hooks) it is the model's own. Results differ from the modules' by rounding alone.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from .. import _native
from ..kernels import tuning
from ..kernels.linear import READS_TENSORS, native_rounding
from ..tiles.native import REAL_NAMES
from .linear import PackedLinear

MODELS = ("LlamaModel", "MistralModel", "Qwen2Model")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
SILU = ("SiLU", "SiLUActivation")
LEAST_SPARE = 256  # tokens
SPARE_SHARE = 2  # half as many tokens as there are


def decode_natively(model: nn.Module) -> int:
    """Let what of `model` can decode natively do so; returns how many layers that are."""
    if not READS_TENSORS:
        return 0
    _native.keep_freed_memory()
    modules: Iterable[Any] = model.modules()
    decoders = [module for module in modules if type(module).__name__ in MODELS and _is_packed(module)]
    for decoder in decoders:
        decoder.forward = _Decoding(decoder)
    return sum(len(decoder.layers) for decoder in decoders)


def decode_by_modules(model: nn.Module) -> None:
    """Undo `decode_natively`."""
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), _Decoding):
            del module.forward


def decodes_natively(forward: object) -> bool:
    """Whether a module's own `forward`, if any, is one that `decode_natively` put there."""
    return forward is None or isinstance(forward, _Decoding)


class _KvBuffer:
    """Keys and values of all layers of a sequence, [layers, 2, 1, heads, size, head_dim], the first `filled` tokens of
    `size` in use.

    Caches that share a buffer see by `filled` whether another one has appended to it.
    """

    def __init__(self, tokens: list[Any]) -> None:
        keys = tokens[0].keys
        self.filled = keys.shape[2]
        self.size = self.filled + max(LEAST_SPARE, self.filled // SPARE_SHARE)
        self.memory = keys.new_empty((len(tokens), 2, *keys.shape[:2], self.size, keys.shape[3]))
        for place, one in zip(self.memory, tokens, strict=True):
            place[0, :, :, : self.filled] = one.keys
            place[1, :, :, : self.filled] = one.values
        self.addresses = [(keys.data_ptr(), values.data_ptr()) for keys, values in self.memory]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or another process, has its tokens elsewhere and makes a buffer of its own: None stands for it."""
        return type(None), ()

    def serves(self, tokens: list[Any]) -> bool:
        """Whether these are its tokens, with room for one more."""
        if tokens[0].keys.shape[2] != self.filled or self.filled == self.size:
            return False
        for one, (keys, values) in zip(tokens, self.addresses, strict=True):
            if one.keys.data_ptr() != keys or one.values.data_ptr() != values:
                return False
        return True

    def take_one_more(self, tokens: list[Any]) -> None:
        self.filled += 1
        parts = self.memory.narrow(4, 0, self.filled).flatten(0, 1).unbind(0)
        for i, one in enumerate(tokens):
            one.keys, one.values = parts[2 * i], parts[2 * i + 1]


class _Decoding:
    """A model's `forward`. It runs for every token, so that its checks count in microseconds."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.native: _NativeLayers | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "native": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Decoding":
        return _Decoding(memo.get(id(self.model), self.model))

    def __call__(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **options: Any,
    ) -> BaseModelOutputWithPast:
        given = input_ids if inputs_embeds is None else inputs_embeds
        if past_key_values is not None and use_cache is not False and not options and _is_one_token(given):
            x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
            y = self._decode(x, attention_mask, position_ids, past_key_values)
            if y is not None:
                return BaseModelOutputWithPast(last_hidden_state=self.model.norm(y), past_key_values=past_key_values)
        plain: BaseModelOutputWithPast = type(self.model).forward(
            self.model,
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **options,
        )
        return plain

    def _decode(self, x: Tensor, mask: Tensor | None, position: Tensor | None, cache: Any) -> Tensor | None:
        """What the layers make of x; None where that is the modules' task."""
        if not self._takes(x):
            return None
        assert self.native is not None
        if packed := _packed(cache, len(self.native.layers)):
            return self._decode_packed(x, mask, position, packed)
        tokens = _tokens(cache, len(self.native.layers))
        if not tokens or not _is_all_seen(mask, tokens[0].keys.shape[2] + 1) or _want_gradient(tokens):
            return None
        if position is None:
            position = torch.full((1, 1), tokens[0].keys.shape[2])
        embeddings = self.model.rotary_emb(x, position)
        return self.native.decode(x, tokens, embeddings) if self.native.takes(tokens) else None

    def _decode_packed(
        self, x: Tensor, mask: Tensor | None, position: Tensor | None, layers: list[Any]
    ) -> Tensor | None:
        """The same with packed caches."""
        assert self.native is not None
        length = layers[0].columns
        if not _is_all_seen(mask, length + 1):
            return None
        embeddings = self.model.rotary_emb(x, torch.full((1, 1), length) if position is None else position)
        return self.native.decode_packed(x, layers, length, embeddings)

    def _takes(self, x: Tensor) -> bool:
        """Whether the modules can be bypassed: packed as before, and without hooks."""
        model, config = self.model, self.model.config
        if model.training or not (x.is_cpu and x.is_contiguous() and x.dtype in REAL_NAMES):
            return False
        if torch.is_grad_enabled() and (x.requires_grad or any(norm.weight.requires_grad for norm in _norms(model))):
            return False
        if config.output_hidden_states or config.output_attentions or not (config.return_dict and config.use_cache):
            return False
        if self.native is None or not self.native.is_of(x.dtype):
            if not _is_packed(model) or not all(_is_plain_norm(norm, x) for norm in _norms(model)):
                return False
            self.native = _NativeLayers(model)
        return not self.native.is_watched()


class _NativeLayers:
    """A model's decoder layers in native code, as their modules are now."""

    def __init__(self, model: Any) -> None:
        self.layers = list(model.layers)
        modules = [module for layer in self.layers for module in layer.modules()]
        hooks = [hooks for module in modules for hooks in (module._forward_hooks, module._forward_pre_hooks)]
        attributes = [(module.__dict__, "forward") for module in modules]
        parts = [_parts(layer) for layer in self.layers]
        places = [place for of_layer in parts for part in of_layer for place in part.places]
        self.watch = _native.Watch(places, attributes, hooks)
        self.norms = [(norm, norm.weight.data_ptr()) for norm in _norms(model)]
        first = self.layers[0]
        self.dtype = first.input_layernorm.weight.dtype
        self.head_dim = first.self_attn.head_dim
        self.kv_heads = first.self_attn.k_proj.out_features // self.head_dim
        layers = [self._native_layer(*both) for both in zip(self.layers, parts, strict=True)]
        self.native = _native.Decoder(layers)

    def _native_layer(self, layer: Any, parts: list["_Part"]) -> _native.DecoderLayer:
        attention = layer.self_attn
        return _native.DecoderLayer(
            REAL_NAMES[self.dtype],
            attention.q_proj.out_features // self.head_dim,
            self.kv_heads,
            self.head_dim,
            layer.input_layernorm.variance_epsilon,
            attention.scaling,
            layer.input_layernorm.weight.detach(),
            layer.post_attention_layernorm.weight.detach(),
            [part.native for part in parts],
        )

    def is_of(self, dtype: torch.dtype) -> bool:
        """Whether the layers still have the modules, matrices, biases and norms that this was made of."""
        if not self.watch.is_same():
            return False
        for norm, address in self.norms:
            weight = norm._parameters["weight"]
            if weight.data_ptr() != address or weight.is_neg():
                return False
        return dtype is self.dtype

    def is_watched(self) -> bool:
        """Whether somebody has hooks in the modules, or put another `forward` into one."""
        return not (self.watch.is_empty() and self.watch.is_lacking())

    def takes(self, tokens: list[Any]) -> bool:
        """Whether keys and values are those of one sequence of this model; a cache may be another's."""
        shape = (1, self.kv_heads, tokens[0].keys.shape[2], self.head_dim)
        for one in tokens:
            keys, values = one.keys, one.values
            if not (keys.shape == values.shape == shape and keys.dtype is values.dtype is self.dtype):
                return False
            if not (keys.is_cpu and values.is_cpu):
                return False
        return True

    def decode(self, x: Tensor, tokens: list[Any], embeddings: tuple[Tensor, Tensor]) -> Tensor | None:
        """What the layers make of x; None, with nothing done, where native code does not take x or the embeddings."""
        buffer = _buffer_of(tokens)
        y = self.native.decode(x, *embeddings, buffer.memory, buffer.filled, torch.get_num_threads())
        if y is not None:
            buffer.take_one_more(tokens)
        return y

    def decode_packed(
        self, x: Tensor, layers: list[Any], length: int, embeddings: tuple[Tensor, Tensor]
    ) -> Tensor | None:
        """The same with packed caches of `length` tokens."""
        stores = [layer.store.native for layer in layers]
        return self.native.decode_packed(x, *embeddings, stores, length, torch.get_num_threads())


class _Part:
    """One of a layer's linear layers, as it was when the native layers were made."""

    __slots__ = ("activations", "floats", "matrix", "places")

    def __init__(self, owner: Any, name: str) -> None:
        linear = getattr(owner, name)
        self.matrix, self.activations = linear.matrix, linear.activations
        # A copy: `share_memory` moves a tensor's memory from under whoever has its address.
        bias = None if linear.bias is None else linear.bias.detach().to(torch.float32, copy=True)
        self.floats = None if bias is None else bias.contiguous().resolve_neg()
        attributes = linear.__dict__
        self.places: list[tuple[dict[str, Any], str, object]] = [
            (owner._modules, name, linear),
            (attributes, "matrix", self.matrix),
            (attributes, "activations", self.activations),
            (attributes["_buffers"], "bias", linear.bias),
        ]

    @property
    def native(self) -> tuple[_native.Matrix, Tensor | None, int, int]:
        tuning.load()
        return self.matrix.native, self.floats, *native_rounding(self.activations)


def _is_packed(model: Any) -> bool:
    """Whether every decoder layer is one that native code knows, with all its linear layers packed."""
    if not model.layers or len(model.layers) != model.config.num_hidden_layers:
        return False
    return all(_is_packed_layer(layer) for layer in model.layers)


def _is_packed_layer(layer: Any) -> bool:
    if type(layer.mlp.act_fn).__name__ not in SILU or getattr(layer.self_attn, "sliding_window", None) is not None:
        return False
    linears = [getattr(owner, name) for owner, names in _owners(layer) for name in names]
    return all(isinstance(linear, PackedLinear) and linear.matrix is not None for linear in linears)


def _parts(layer: Any) -> list[_Part]:
    return [_Part(owner, name) for owner, names in _owners(layer) for name in names]


def _owners(layer: Any) -> list[tuple[Any, tuple[str, ...]]]:
    return [(layer.self_attn, ATTENTION), (layer.mlp, FEED_FORWARD)]


def _norms(model: Any) -> list[Any]:
    return [norm for layer in model.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]


def _is_plain_norm(norm: Any, x: Tensor) -> bool:
    weight = norm.weight
    is_plain = weight.is_contiguous() and weight.is_cpu and not weight.is_neg()
    return is_plain and weight.dtype is x.dtype and weight.shape == x.shape[-1:]


def _is_one_token(given: Tensor | None) -> bool:
    """Of one sequence, computed here and now."""
    return given is not None and given.shape[:2] == (1, 1) and not torch.compiler.is_compiling()


def _is_all_seen(mask: Tensor | None, length: int) -> bool:
    return mask is None or (mask.shape == (1, length) and bool(mask.all()))


def _want_gradient(tokens: list[Any]) -> bool:
    """Whether keys or values are learned, as in prefix tuning."""
    return torch.is_grad_enabled() and any(one.keys.requires_grad or one.values.requires_grad for one in tokens)


def _tokens(cache: Any, count: int) -> list[Any]:
    """The layers of a cache that grows and holds tokens already; none if it is another."""
    layers = getattr(cache, "layers", [])
    for tokens in layers:
        if type(tokens).__name__ != "DynamicLayer" or not tokens.is_initialized:
            return []
    return layers if len(layers) == count else []


def _packed(cache: Any, count: int) -> list[Any]:
    """The layers of a packed cache of one sequence that holds tokens already, none of them padding."""
    layers = getattr(cache, "layers", [])
    for layer in layers:
        if type(layer).__name__ != "LayerKvCache" or not layer.is_plain:
            return []
    return layers if len(layers) == count else []


def _buffer_of(tokens: list[Any]) -> _KvBuffer:
    """Where the cache's tokens lie, with room for one more."""
    buffer: _KvBuffer | None = getattr(tokens[0], "tilepress_buffer", None)
    if buffer is None or not buffer.serves(tokens):
        buffer = tokens[0].tilepress_buffer = _KvBuffer(tokens)
    return buffer
