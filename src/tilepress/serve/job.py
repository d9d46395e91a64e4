"""What both kinds of generation share: a request that the engine can take, and the form of its answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..engine import Sampling
from .deltas import Delta
from .prompts import Prompt
from .tools import ToolReader

Choice = dict[str, Any]


class Form(Protocol):
    """How OpenAI's API has answers. name: of whole ones. chunk_name: of pieces."""

    id_prefix: str
    name: str
    chunk_name: str

    def opening(self) -> Sequence[Choice]:
        """Pieces before the first token."""
        ...

    def piece(self, delta: Delta) -> Choice:
        """Of a streamed answer."""
        ...

    def whole(self, pieces: Sequence[Choice]) -> Choice:
        """One answer, from all its pieces."""
        ...


@dataclass(frozen=True)
class Job:
    """readers: of tool calls, one for each answer, if there are tools."""

    prompts: Sequence[Prompt]
    sampling: Sampling
    form: Form
    readers: Sequence[ToolReader] | None = None
