"""The parts of a model that are compressed one after another: its decoder blocks, and then what lies outside them."""

from collections.abc import Iterable, Iterator

from torch import Tensor, nn

from ..nn import PackedLinear
from ..nn.row_scale import is_lookup
from .names import READ_BY_CODE
from .names import pattern as pattern

REST = "rest"  # the stage of what lies outside the blocks


def linear_layers(module: nn.Module, prefix: str = "") -> dict[str, nn.Linear]:
    """Name → layer, for plain `nn.Linear` alone: what inherits from it computes something else. Without those whose
    weights a model's code reads by itself."""
    return {
        f"{prefix}.{name}" if prefix else name: layer
        for name, layer in module.named_modules()
        if type(layer) is nn.Linear and not is_read_by_code(name)
    }


def is_read_by_code(name: str) -> bool:
    return name.rpartition(".")[2] in READ_BY_CODE


def all_linear_layers(module: nn.Module) -> dict[str, nn.Linear | PackedLinear]:
    """Name → layer, for packed ones too."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if type(layer) is nn.Linear or isinstance(layer, PackedLinear)
    }


def find_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Name → block, in order: the entries of the module list that holds the most weights of linear layers, of those
    lists that are not inside another's entry. Empty where there is no such list."""
    lists = [(name, module) for name, module in _outermost_lists(model) if all(map(all_linear_layers, module))]
    if not lists:
        return {}
    name, blocks = max(lists, key=lambda named: _linear_weights(named[1]))
    return {f"{name}.{number}": block for number, block in enumerate(blocks)}


def output_layer(model: nn.Module) -> str | None:
    """The name of the layer that gives logits, `lm_head` mostly, if the model says which that is and it is linear."""
    get = getattr(model, "get_output_embeddings", None)
    layer = get() if get is not None else None
    return (
        next((name for name, module in model.named_modules() if module is layer), None) if layer is not None else None
    )


def input_embedding(model: nn.Module) -> tuple[str, nn.Module] | None:
    """Name and module of the table that turns tokens into hidden states, if the model says which that is; None where
    other tables share its weight, as those of T5's encoder and decoder do."""
    get = getattr(model, "get_input_embeddings", None)
    table = get() if get is not None else None
    tables = [] if table is None else _with_its_weight(model, table)
    return tables[0] if len(tables) == 1 else None


def _with_its_weight(model: nn.Module, table: nn.Module) -> list[tuple[str, nn.Module]]:
    """The table, and all other embeddings that have its weight."""
    weight = getattr(table, "weight", None)
    return [
        (name, module)
        for name, module in model.named_modules()
        if module is table or (isinstance(module, nn.Embedding) and module.weight is weight)
    ]


def packable_embedding(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The same, None where it does more than look rows up and multiply them by a constant."""
    table = input_embedding(model)
    return table if table is not None and is_lookup(table[1]) else None


def is_tied(model: nn.Module) -> bool:
    """Whether the output layer computes with the own weight of an embedding that can be packed."""
    table, output = packable_embedding(model), output_layer(model)
    if table is None or output is None:
        return False
    return getattr(model.get_submodule(output), "weight", None) is table[1].weight


def stage_state(model: nn.Module, stage: str, blocks: Iterable[str]) -> dict[str, Tensor]:
    """Name → parameter or saved buffer of one of `blocks`, or of all the rest; one that has several names, once."""
    in_blocks = tuple(f"{block}." for block in blocks)
    tensors: dict[int, tuple[str, Tensor]] = {}
    for key, tensor in model.state_dict(keep_vars=True).items():
        if key.startswith(f"{stage}.") if stage != REST else not key.startswith(in_blocks):
            tensors.setdefault(id(tensor), (key, tensor))
    return dict(tensors.values())


def _outermost_lists(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.ModuleList]]:
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList) and len(child):
            yield prefix + name, child
        else:
            yield from _outermost_lists(child, f"{prefix}{name}.")


def _linear_weights(module: nn.Module) -> int:
    return sum(layer.in_features * layer.out_features for layer in all_linear_layers(module).values())
