"""Options of studies on a model, as `reproduce --set` takes them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .studies.activations import ActivationStudy
    from .studies.kv_cache import KvStudy


@dataclass(frozen=True)
class Subject:
    """A model; `weights`: a format that they are compressed to first, "" to leave them as they come; where it runs, and
    how many windows at once."""

    model: str = "smollm2-135m"
    weights: str = ""
    device: str = "cpu"
    batch: int = 1


@dataclass(frozen=True)
class Studied(Subject):
    """And a text; `quantize`: how weights that are compressed first are quantised."""

    text: str = "wikitext2"
    quantize: str = "rtn"


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


SUBJECT, STUDIED = Subject(), Studied()
CHECKED, SAMPLED, LEARNED = Checked(), Sampled(), Learned()
SHORT = Checked(tokens=128)  # of studies with many settings


def activation_study(subject: Subject, quantize: str, text: str, *sizes: Checked | Sampled) -> "ActivationStudy":
    """A study of activations with these options."""
    from .studies.activations import Sizes, load_study

    return load_study(subject.model, subject.weights, quantize, text, subject.device, Sizes(**_joined(subject, sizes)))


def kv_study(subject: Subject, text: str, *sizes: Checked | Sampled, **more: int) -> "KvStudy":
    """A study of KV caches with these options; `more` of its sizes by name."""
    from .studies.kv_cache import Sizes, load_kv_study

    all_sizes = Sizes(**_joined(subject, sizes), **more)
    return load_kv_study(subject.model, subject.weights, text, subject.device, all_sizes)


def _joined(subject: Subject, sizes: Iterable[Checked | Sampled]) -> dict[str, int]:
    return {name: value for one in sizes for name, value in asdict(one).items()} | {"batch": subject.batch}
