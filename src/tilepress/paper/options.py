"""What studies on a model can be told, as `reproduce --set` takes it."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .kv_study import KvStudy


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

    windows: int = 1
    tokens: int = 256


@dataclass(frozen=True)
class Sampled:
    """Sequences from the text's part for training, to search or learn on."""

    sequences: int = 2
    length: int = 128


@dataclass(frozen=True)
class Learned(Sampled):
    """And how many steps scales are learned in: 32 where a model is compressed."""

    steps: int = 8


SUBJECT, CHECKED, SAMPLED, LEARNED = Subject(), Checked(), Sampled(), Learned()
SHORT = Checked(tokens=128)  # of studies with many settings


def kv_study(subject: Subject, text: str, *sizes: Checked | Sampled, **others: int) -> "KvStudy":
    """A study of KV caches with these options."""
    from .kv_study import Sizes, load_kv_study

    told = {name: value for one in sizes for name, value in asdict(one).items()} | others
    all_sizes = Sizes(**told, batch=subject.batch)
    return load_kv_study(subject.model, subject.weights, text, subject.device, all_sizes)
