"""Anda's search with several workers, each of which has the model.

The search goes on as it does alone, one combination after the other, so that its result and its steps are the same.
While it waits for an answer, free workers compute what it may ask for next.
"""

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..compression.ahead import questions
from ..compression.search import Found, Mantissas, Step
from ..models.checkpoint_checks import NOTHING, Allowed
from ..models.precision import Evaluations, Judge
from ..models.recipe import Recipe, read_recipe
from ..models.study_model import load_study_model
from ..records import Record, machine
from .batch import Batch, ClusterError, Outcome, Settings
from .executor import Ended, Executor

PERPLEXITY = f"{__name__}:perplexity"  # what batches call


def shared_job(
    model: str,
    recipe: Recipe | None,
    windows: Tensor,
    group: int,
    batch: int = 1,
    device: str = "cpu",
    allowed: Allowed = NOTHING,
) -> dict[str, Any]:
    """What workers are told, as JSON: all of a `Judge` and of the model that `load_study_model` loads for it."""
    return {
        "model": model,
        "recipe": recipe and recipe.model_dump(mode="json"),
        "windows": windows.tolist(),
        "group": group,
        "batch": batch,
        "device": device,
        "allowed": asdict(allowed),
    }


class SharedJudge:
    """A `Judge` whose perplexities are computed by an executor's workers. `job`: what they are told, by `shared_job`;
    `command`: what the records say gave them."""

    def __init__(self, executor: Executor, job: Settings, evaluations: Evaluations, command: str = "") -> None:
        self.evaluations = evaluations
        self._executor, self._job, self._command = executor, job, command
        self._ended: Generator[Ended, None, None]

    def conduct(self, search: Callable[..., Found], track: Callable[[Step], None]) -> Found:
        """What `search` finds; nothing runs on after it."""
        with closing(self._executor.run(self._batches(search))) as self._ended:
            return search(self, track=track)

    def __call__(self, mantissas: Mantissas | None) -> float:
        while (perplexity := self.evaluations.get(mantissas)) is None:
            self._enter(*next(self._ended))
        return perplexity

    def _batches(self, search: Callable[..., Found]) -> Iterator[Batch]:
        """Of what has not been asked for, what is likeliest to be: chosen when a worker is free for it."""
        sent = set[Mantissas | None]()
        while fresh := next(([one] for one in questions(search, self.evaluations.get) if one not in sent), None):
            sent.update(fresh)
            yield Batch(PERPLEXITY, [{**self._job, "mantissas": one} for one in fresh], self._command)

    def _enter(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        for point, outcome in zip(batch.points, outcomes, strict=True):
            if isinstance(outcome, str):
                raise ClusterError(f"a worker has no perplexity of {point['model']}: {outcome}")
            self.evaluations.put(point["mantissas"], float(str(outcome[0].value)))


def perplexity(settings: Settings, command: str) -> list[Record]:
    """With the mantissas that `settings` add to a job; as text, since JSON has no infinity. The model stays loaded."""
    mantissas = settings["mantissas"] and tuple(settings["mantissas"])
    rest = {name: value for name, value in settings.items() if name != "mantissas"}
    value = _judge(json.dumps(rest, sort_keys=True))(mantissas)
    return [Record("perplexity", {}, repr(value), "", "measured", machine(), command)]


@lru_cache(maxsize=1)
def _judge(job: str) -> Judge:
    given = json.loads(job)
    recipe = None if given["recipe"] is None else read_recipe(given["recipe"])
    allowed = Allowed(**given["allowed"])
    subject = load_study_model(given["model"], recipe, given["device"], allowed=allowed, announce=_silently)
    windows = torch.tensor(given["windows"])
    return Judge(subject.model, subject.types, windows, given["group"], Evaluations(), given["batch"])


def _silently(text: str) -> None:
    pass
