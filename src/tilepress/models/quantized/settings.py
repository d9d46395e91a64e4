"""Values of a `quantization_config`, which may be anything."""

from collections.abc import Collection, Mapping
from typing import Any

from ..embedded import ModelUnavailableError


def integer(config: Mapping[str, Any], key: str, known: Collection[int] | None = None) -> int:
    """A whole number; ModelUnavailableError where it is another thing, or none of `known`."""
    value = config.get(key)
    if type(value) is not int or (known is not None and value not in known):
        wanted = "a whole number" if known is None else " or ".join(map(str, known))
        raise ModelUnavailableError(f"its quantization_config has {key} {value!r}, and what is read is {wanted}")
    return value


def section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under a key; empty where there is none."""
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ModelUnavailableError(f"its quantization_config has no mapping under {key}: fetch the model again")
    return value or {}
