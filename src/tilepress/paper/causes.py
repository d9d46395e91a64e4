"""Why cells deviate, in their notes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from .item import Experiment, Ours, Track

Causes = Mapping[tuple[str, str], str]  # row, column → one line


def explained(causes: Causes) -> Callable[[Experiment], Experiment]:
    """An experiment whose cells say why they deviate, beside what else their notes say."""

    def wrap(experiment: Experiment) -> Experiment:
        @wraps(experiment)
        def with_causes(track: Track, **options: Any) -> Iterator[Ours]:
            for one in experiment(track, **options):
                notes = (one.note, causes.get((one.row, one.column), ""))
                yield replace(one, note="; ".join(filter(None, notes)))

        return with_causes

    return wrap
