"""Tensors that transformers makes of several in a checkpoint, or of a part of one: the projections of experts."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .linear_form import Part
from .shards import Shards


@dataclass(frozen=True)
class Join:
    """What `rule`, a WeightConverter of transformers, makes of tensors in the files: pattern of the rule → their
    names, in the order in which it takes them. The result is called `place` in the model."""

    rule: Any
    place: str
    sources: Mapping[str, list[str]]

    @property
    def merges_experts(self) -> bool:
        """Whether it puts tensors one above another, so that each can be had alone."""
        first = self.rule.operations[0]
        is_merge = type(first).__name__ == "MergeModulelist" and first.dim == 0
        return is_merge and len({len(names) for names in self.sources.values()}) == 1

    @property
    def experts(self) -> int:
        """How many it merges."""
        return len(next(iter(self.sources.values())))

    def read(self, shards: Shards, model: Any, part: Part | None) -> Tensor:
        """All of it, or `part`. Of merged experts only those tensors are read that the part is made of."""
        if part is None or part.index is None or not self.merges_experts:
            whole = self._converted(shards, model, slice(None))
            return whole if part is None else part.of(whole)
        one = self._converted(shards, model, slice(part.index, part.index + 1))
        return Part(part.key, 0, part.transposed).of(one)

    @torch.no_grad()
    def _converted(self, shards: Shards, model: Any, span: slice) -> Tensor:
        rule = deepcopy(self.rule)
        for pattern, names in self.sources.items():
            for name in names[span]:
                rule.add_tensor(self.place, name, pattern, shards[name])
        made = rule.convert(self.place, model=model, config=model.config)[self.place]
        tensor: Tensor = made[0] if isinstance(made, list) else made
        return tensor


def find_joins(model: Any, stored: Iterable[str]) -> dict[str, Join]:
    """Name in `model` → join, of those that give one tensor each."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    joining = [rule for rule in rules if isinstance(rule, WeightConverter) and len(rule.target_patterns) == 1]
    of_pattern = {pattern: rule for rule in joining for pattern in rule.source_patterns}
    state, base = model.state_dict(), model.base_model_prefix
    joins: dict[str, Join] = {}
    for name in sorted(stored, key=dot_natural_key):
        place, pattern = rename_source_key(name, renamings, joining, base, state)
        if pattern is not None and place in state and name not in state:
            join = joins.setdefault(place, Join(of_pattern[pattern], place, {}))
            join.sources.setdefault(pattern, []).append(name)  # type: ignore[attr-defined]
    return {place: join for place, join in joins.items() if join.sources.keys() == set(join.rule.source_patterns)}
