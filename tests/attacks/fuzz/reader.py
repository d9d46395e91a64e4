"""What a fuzz target is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

Files = Mapping[str, bytes]  # name in the folder → content


@dataclass(frozen=True)
class Case:
    """`is_damage`: the files differ from valid ones in bytes that have a checksum, so they must be refused."""

    files: Files
    is_damage: bool = False


class Reader(Protocol):
    """Made once per batch, in the process that runs it, with a folder to work in: that may take a second.

    `refusals`: what the reader's documentation says it raises; exactly these, since a UnicodeError, say, is a
    ValueError too. `samples`: valid files, which must be accepted.
    """

    refusals: tuple[type[BaseException], ...]
    samples: list[Files]

    def __init__(self, folder: Path) -> None: ...

    def mutated(self, files: Files, random: Random) -> Case:
        """A case made of one of the samples."""

    def read(self, folder: Path) -> None:
        """Read what lies in the folder through the public entry point, and use what is accepted."""


@dataclass(frozen=True)
class Target:
    """`module` has a class `Reader`. `share`: cases of a million; `batch`: cases per process; `seconds`: CPU time after
    which a case hangs."""

    module: str
    share: int
    batch: int = 5000
    seconds: float = 5


# Shares follow speed: the first seven readers take tens of microseconds to milliseconds per case, those that go through
# transformers up to a tenth of a second.
TARGETS = {
    "tiles": Target("tiles", 280_000),
    "kv": Target("kv", 140_000),
    "recipe": Target("recipe", 150_000),
    "machine": Target("machine", 50_000),
    "lut": Target("lut", 180_000),
    "records": Target("records", 150_000),
    "quantized": Target("quantized", 40_000, batch=2000, seconds=20),
    "model": Target("model", 5_000, batch=500, seconds=60),
    "gguf": Target("gguf", 5_000, batch=500, seconds=60),
}
