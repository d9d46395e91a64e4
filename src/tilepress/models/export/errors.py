"""What cannot be exported."""

from ...formats import BFP, WeightFormat


class ExportError(ValueError):
    """A model that the target has no place for; the message says what would fit."""


def no_counterpart(name: str, format: WeightFormat | BFP, target: str, why: str, nearest: str) -> ExportError:
    return ExportError(
        f"{name} is {format}, and {target} cannot hold it to the bit ({why}): compress the model with --weights "
        f"{nearest}, the nearest format that {target} has"
    )
