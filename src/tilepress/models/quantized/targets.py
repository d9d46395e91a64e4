"""Which of a compressed-tensors config's groups a layer belongs to.

A target is a layer's name, a class of modules ("Linear"), or "re:" and a regular expression. Expressions come from the
file, and one may take for ever: only simple ones are matched.
"""

import re
from collections.abc import Mapping
from typing import Any

from ..embedded import ModelUnavailableError
from .settings import section

CLASSES = ("Linear",)
_SIMPLE = re.compile(r"(?:[\w\-/]|\\[.d]\+?|\.|\[0-9\]\+|\.\*|\((?:\?:)?(?:[\w|\-]|\\\.)+\)|\$|\^)*")
MOST_STARS, LONGEST = 4, 200


def refuse_code_beside(config: Mapping[str, Any]) -> None:
    """Refuse what changes weights beside their rounding."""
    sparsity = section(config, "sparsity_config").get("format", "dense")
    if sparsity != "dense":
        raise ModelUnavailableError(f"its weights are also stored as {sparsity!r}: save them dense")
    if section(config, "transform_config").get("config_groups"):
        raise ModelUnavailableError(
            "its layers' inputs are transformed on the way (transform_config), which is not done here"
        )


def settings_of(config: Mapping[str, Any], layer: str) -> Mapping[str, Any]:
    """How the weights of `layer` are stored."""
    groups = [group for group in section(config, "config_groups").values() if isinstance(group, Mapping)]
    weights = [section(group, "weights") for group in groups if group.get("weights")]
    if weights and all(one == weights[0] for one in weights):
        return weights[0]
    for group in sorted(groups, key=lambda group: _is_by_class(group)):
        if any(_matches(target, layer) for target in _targets(group)):
            return section(group, "weights")
    raise ModelUnavailableError(f"none of the groups in its quantization_config is for {layer}, which is quantised")


def _is_by_class(group: Mapping[str, Any]) -> bool:
    """Names come before classes."""
    return any(target in CLASSES for target in _targets(group))


def _targets(group: Mapping[str, Any]) -> list[str]:
    targets = group.get("targets") or []
    if not isinstance(targets, list):
        raise ModelUnavailableError(
            f"its quantization_config has targets {str(targets)[:60]!r}, which are no list: fetch the model again"
        )
    return [str(target) for target in targets]


def _matches(target: str, layer: str) -> bool:
    if not target.startswith("re:"):
        return target in CLASSES or target == layer
    pattern = target.removeprefix("re:")
    repeats = pattern.count("*") + pattern.count("+")
    if len(pattern) > LONGEST or repeats > MOST_STARS or not _SIMPLE.fullmatch(pattern):
        raise ModelUnavailableError(f"its quantization_config has a target that is not read: {pattern[:60]!r}")
    return re.match(pattern, layer) is not None
