"""What pydantic found wrong with a file, in words."""

from typing import Any

from pydantic import ValidationError


def problems(error: ValidationError, whole: str) -> str:
    """Each problem with its field, dotted; `whole` names what has no field of its own."""
    return "; ".join(_problem(one, whole) for one in error.errors())


def _problem(error: Any, whole: str) -> str:
    field = ".".join(map(str, error["loc"])) or whole
    if error["type"] == "extra_forbidden":
        return f"{field}: there is no such field"
    if error["type"] == "missing":
        return f"{field}: is missing"
    return f"{field}: {error['msg'].removeprefix('Value error, ')}"
