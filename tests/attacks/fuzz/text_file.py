"""Readers of one text file: bytes or words of it are changed."""

from pathlib import Path
from random import Random
from typing import ClassVar

from .mutate import mutated_bytes, mutated_text
from .reader import Case, Files


class TextReader:
    """`name`: of the file. `texts`: what it holds at first. `words`: to put in. `byte_share`: of changes in bytes."""

    name: ClassVar[str]
    texts: ClassVar[tuple[str, ...]]
    words: ClassVar[tuple[str, ...]]
    byte_share: ClassVar[float]

    def __init__(self, folder: Path) -> None:
        self.samples = [{self.name: text.encode()} for text in self.texts]

    def mutated(self, files: Files, random: Random) -> Case:
        content = files[self.name]
        if random.random() < self.byte_share:
            return Case({self.name: mutated_bytes(content, random)})
        return Case({self.name: mutated_text(content.decode(), random, self.words).encode("utf-8", "replace")})
