"""Losses of layers and their candidates, kept beside a recipe so that an interrupted measurement goes on."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .._files import write_text
from .sensitivity import Stored, Unit


class LossesError(ValueError):
    """A file of losses that belongs to something else."""


class MeasuredLosses:
    """The `sensitivity.Results` in the file `path`, written whenever a block is done. `job`: all that losses depend
    on. A loss that is not finite is null in the file."""

    def __init__(self, path: Path, job: Mapping[str, Any]) -> None:
        self._path, self._job = path, json.loads(json.dumps(job))
        self._losses: dict[str, dict[str, float]] = {}
        self._others: dict[str, dict[str, Stored]] = {}
        if path.exists():
            self._read()

    def of(self, unit: Unit, choice: str) -> float:
        return self._losses[unit.match][choice]

    @property
    def others(self) -> dict[str, Stored]:
        """Name → tensor that no unit has."""
        return {name: one for own in self._others.values() for name, one in own.items()}

    def missing(self, unit: Unit, choices: Iterable[str]) -> list[str]:
        return [choice for choice in choices if choice not in self._losses.get(unit.match, {})]

    def has(self, stage: str) -> bool:
        return stage in self._others

    def put(self, stage: str, losses: Mapping[str, Mapping[str, float]], others: Mapping[str, Stored]) -> None:
        for match, own in losses.items():
            self._losses.setdefault(match, {}).update(own)
        self._others[stage] = dict(others)
        write_text(self._path, json.dumps(self._stated(), indent=1))

    def _stated(self) -> dict[str, Any]:
        finite = {
            match: {choice: loss if math.isfinite(loss) else None for choice, loss in own.items()}
            for match, own in self._losses.items()
        }
        others = {
            stage: {name: [list(one.shape), one.itemsize] for name, one in own.items()}
            for stage, own in self._others.items()
        }
        return {"job": self._job, "losses": finite, "others": others}

    def _read(self) -> None:
        try:
            stored = json.loads(self._path.read_text("utf-8"))
            job = stored["job"]
            self._losses = {
                str(match): {str(choice): math.nan if loss is None else float(loss) for choice, loss in own.items()}
                for match, own in stored["losses"].items()
            }
            self._others = {
                str(stage): {str(name): Stored(tuple(map(int, one[0])), int(one[1])) for name, one in own.items()}
                for stage, own in stored["others"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise LossesError(f"{self._path} is not what allocate left: delete it, or move it away") from error
        if job != self._job:
            raise LossesError(
                f"{self._path} holds losses of another model, method, text or version: delete it, or choose another "
                "output"
            )
