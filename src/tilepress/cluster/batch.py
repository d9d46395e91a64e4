"""Points, the batches that they are computed in, and what comes back of each.

A point is a call of a function with `settings`, which are JSON. A batch is several calls of one function, so that what
it costs to hand work to another process is shared.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..records import Record, from_json

Settings = Mapping[str, Any]
Outcome = list[Record] | str  # of a point: its records, or why there are none


class ClusterError(RuntimeError):
    """What stops all of a run; the message says why. What has ended stays."""


def name_of(settings: Any) -> str:
    """16 characters that differ for different settings, and do not depend on the order of keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Batch:
    """Calls of `function`, "module:name", once for each of `points`; `command`: what the records say gave them."""

    function: str
    points: Sequence[Settings]
    command: str

    @property
    def name(self) -> str:
        return name_of([self.function, *self.points])

    @property
    def call(self) -> dict[str, Any]:
        """What a worker is sent: JSON, which `work.answer` takes."""
        given = {"function": self.function, "points": list(self.points), "command": self.command}
        return {**given, "version": __version__}

    def outcomes(self, answer: Mapping[str, Any]) -> list[Outcome]:
        """One a point, of what `work.answer` gave; ClusterError where the worker refused."""
        if "refused" in answer:
            raise ClusterError(answer["refused"])
        return [
            one["failed"] if "failed" in one else from_json(one["records"], f"the answer of {self.function}")
            for one in answer["results"]
        ]

    def lost(self, reason: str) -> list[Outcome]:
        """What becomes of all its points, where nothing came back."""
        return [reason for _ in self.points]
