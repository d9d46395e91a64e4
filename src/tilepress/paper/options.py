"""What studies on a model can be told, as `reproduce --set` takes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """A model; `weights`: a format that they are compressed to first, "" to leave them as they come; where it runs, and
    how many windows at once."""

    model: str = "smollm2-135m"
    weights: str = ""
    device: str = "cpu"
    batch: int = 1


@dataclass(frozen=True)
class Checked:
    """Windows of so many tokens of the text, to judge on."""

    windows: int = 2
    tokens: int = 512


@dataclass(frozen=True)
class Sampled:
    """Sequences from the text's part for training, to search or learn on."""

    sequences: int = 4
    length: int = 512


SUBJECT, CHECKED, SAMPLED = Subject(), Checked(), Sampled()
