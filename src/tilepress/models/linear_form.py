"""Layers that compute as `nn.Linear` does, but are none, put into that form: what is packed is `nn.Linear` alone.

- The experts of a mixture, all in one parameter for each projection, become linear layers, see `nn.PackedExperts`.
- GPT-2's `Conv1D` becomes a linear layer with the transposed weight.
- Falcon's linear layers, which multiply and add in two steps, become plain ones.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..nn import PackedExperts
from ..nn.experts import up_name

TRANSPOSED = {("transformers.pytorch_utils", "Conv1D")}  # weights [inputs, neurons]
PLAIN = {("transformers.models.falcon.modeling_falcon", "FalconLinear")}
WITHOUT_INTERFACE = {"Llama4TextExperts": {"is_transposed": True, "has_bias": False}}


@dataclass(frozen=True)
class Part:
    """Where a tensor of the linear form is in the model as it was: in `key`, the expert `index` of it if it has many,
    with rows and columns exchanged if `transposed`."""

    key: str
    index: int | None = None
    transposed: bool = False

    def of(self, tensor: Tensor) -> Tensor:
        """A view of this part of the tensor called `key`."""
        part = tensor if self.index is None else tensor[self.index]
        return part.T if self.transposed else part


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Put `layer` in the place of the one called `name`."""
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)


def holders(layers: Iterable[str]) -> set[str]:
    """Names of layers, and of all modules that they are in."""
    paths = (name.split(".") for name in layers)
    return {".".join(path[:length]) for path in paths for length in range(1, len(path) + 1)}


def to_linear_form(model: nn.Module, selects: Callable[[str], bool] = lambda _: True) -> dict[str, Part]:
    """Replace modules whose names `selects` picks, in place: name of each parameter that is new → where it was. The
    new ones are views of the old."""
    parts: dict[str, Part] = {}
    for name, module in list(model.named_modules()):
        if not name or not selects(name):
            continue
        if _is(module, TRANSPOSED | PLAIN):
            parts |= _replace_linear(model, name, module)
        elif why_not_split(module) == "":
            parts |= _replace_experts(model, name, module)
    return parts


@contextmanager
def undone_on_error(model: nn.Module) -> Iterator[None]:
    """What is replaced meanwhile takes its place again where an error ends it."""
    before = {name: module for name, module in model.named_modules() if name and _is_replaceable(module)}
    try:
        yield
    except BaseException:
        for name, module in before.items():
            replace_layer(model, name, module)
        raise


def why_not_split(module: nn.Module) -> str | None:
    """Empty for experts that can be linear layers; why not, if they cannot; None for another module."""
    projections = {up_name(module), "down_proj"}
    tensors = [module._parameters.get(name) for name in projections]
    if not all(tensor is not None and tensor.ndim == 3 for tensor in tensors):
        return None
    kind = type(module).__name__
    if _layout(module) is None:
        return f"{kind} is not of transformers' interface of experts"
    biases = {f"{name}_bias" for name in projections} if _layout(module)["has_bias"] else set()
    if {name for name, _ in module.named_parameters()} != projections | biases or list(module.buffers()):
        return f"{kind} has more weights than projections"
    return ""


def to_stored_form(model: Any) -> Any:
    """A model whose layers are plain again, in the form that transformers saves and loads; returns the model."""
    for name, module in list(model.named_modules()):
        if isinstance(module, PackedExperts):
            replace_layer(model, name, _joined(module))
    with torch.device("meta"):
        stored = type(model)(model.config)
    for name, module in stored.named_modules():
        if _is(module, TRANSPOSED):
            replace_layer(model, name, _transposed(module, model.get_submodule(name)))
    _share_nothing(model)
    return model


def _share_nothing(model: Any) -> None:
    """An output layer that took the embedding's matrix has a weight of its own, where the config says so."""
    table, output = model.get_input_embeddings(), model.get_output_embeddings()
    if not model.config.tie_word_embeddings and output is not None and output.weight is table.weight:
        output.weight = nn.Parameter(table.weight.clone(), requires_grad=False)


def _is(module: nn.Module, kinds: set[tuple[str, str]]) -> bool:
    return (type(module).__module__, type(module).__name__) in kinds


def _is_replaceable(module: nn.Module) -> bool:
    return _is(module, TRANSPOSED | PLAIN) or why_not_split(module) == ""


def _replace_linear(model: nn.Module, name: str, module: Any) -> dict[str, Part]:
    weight = Part(f"{name}.weight", transposed=_is(module, TRANSPOSED))
    linear = _linear(weight.of(module.weight), module.bias)
    replace_layer(model, name, linear.train(module.training))
    return {weight.key: weight}


def _replace_experts(model: nn.Module, name: str, module: nn.Module) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    layers: dict[str, list[nn.Module]] = {}
    layout = _layout(module)
    for projection in (up_name(module), "down_proj"):
        weights, biases = module._parameters[projection], module._parameters.get(f"{projection}_bias")
        assert weights is not None
        for number in range(len(weights)):
            weight = Part(f"{name}.{projection}", number, layout["is_transposed"])
            parts[f"{name}.{number}.{projection}.weight"] = weight
            bias = None if biases is None else biases[number]
            if bias is not None:
                parts[f"{name}.{number}.{projection}.bias"] = Part(f"{name}.{projection}_bias", number)
            layers.setdefault(projection, []).append(_linear(weight.of(weights), bias))
    replace_layer(model, name, PackedExperts(module, *layers.values()).train(module.training))
    return parts


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return linear


def _layout(module: nn.Module) -> Any:
    """`is_transposed` and `has_bias` of experts that we know how to run; None for others."""
    if hasattr(module, "is_concatenated") and not getattr(module, "has_post_expert_norm", False):
        return {"is_transposed": module.is_transposed, "has_bias": module.has_bias}
    return WITHOUT_INTERFACE.get(type(module).__name__)


def _joined(experts: PackedExperts) -> Any:
    """The module that the plain layers of `experts` were made of."""
    plain: Any = experts.plain
    whole, transposed = copy(plain), _layout(plain)["is_transposed"]
    whole._parameters = dict(whole._parameters)
    for projection in (experts.up_name, "down_proj"):
        layers = experts.projections(projection)
        weights = torch.stack([layer.weight.T if transposed else layer.weight for layer in layers])
        whole._parameters[projection] = nn.Parameter(weights, requires_grad=False)
        if layers[0].bias is not None:
            biases = torch.stack([layer.bias for layer in layers])
            whole._parameters[f"{projection}_bias"] = nn.Parameter(biases, requires_grad=False)
    return whole


def _transposed(like: Any, linear: Any) -> Any:
    like.weight = nn.Parameter(linear.weight.T.contiguous(), requires_grad=False)
    like.bias = nn.Parameter(linear.bias, requires_grad=False)
    return like
