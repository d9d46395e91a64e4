"""A search with workers: what it finds alone, step by step, whichever answer comes first."""

import json
import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compression.test_search import additive, problems
from tests.models import tiny
from tilepress.cluster import ClusterError
from tilepress.cluster.searching import PERPLEXITY, SharedJudge, perplexity, shared_job
from tilepress.compression.search import brute_force, search, uniform
from tilepress.models import read_recipe
from tilepress.models.precision import Evaluations, Judge
from tilepress.models.study_model import load_study_model
from tilepress.records import Record


class Shuffled:
    """An executor that always has `workers` batches under way; chance says which ends first."""

    def __init__(self, perplexity, workers, seed=0):
        self.perplexity, self.workers, self.chance = perplexity, workers, random.Random(seed)
        self.asked, self.most = [], 0

    def run(self, batches):
        waiting, running = iter(batches), []
        while True:
            while len(running) < self.workers and (batch := next(waiting, None)):
                running.append(batch)
            if not running:
                return
            self.most = max(self.most, len(running))
            batch = running.pop(self.chance.randrange(len(running)))
            [point] = batch.points
            assert batch.function == PERPLEXITY and point["model"] == "m"
            self.asked.append(point["mantissas"])
            yield batch, [self._outcome(point["mantissas"])]

    def _outcome(self, mantissas):
        value = self.perplexity(mantissas)
        return value if isinstance(value, str) else [Record("perplexity", {}, repr(value), "", "measured", "m", "c")]


@settings(max_examples=60)
@given(problem=problems, workers=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_any_number_of_workers_gives_the_same_steps(problem, workers, seed):
    """Also where more bits do not always mean less loss."""
    sensitivities, products, tolerance = problem
    smooth = additive(*sensitivities)

    def rough(mantissas):
        return smooth(mantissas) if mantissas is None else smooth(mantissas) * (1 + hash((seed, mantissas)) % 7 / 500)

    for find in (search, partial(brute_force, least=11)):
        find = partial(find, products=products, tolerance=tolerance)
        executor, steps = Shuffled(rough, workers, seed), []
        found = SharedJudge(executor, {"model": "m"}, Evaluations()).conduct(find, steps.append)
        assert found == find(rough) and tuple(steps) == found.steps
        assert len(executor.asked) == len({*executor.asked})


def test_workers_are_kept_busy():
    executor = Shuffled(additive(30, 80, 10, 200), 4)
    SharedJudge(executor, {"model": "m"}, Evaluations()).conduct(
        partial(search, products=(3, 1, 4, 4), tolerance=0.01), print
    )
    assert executor.most == 4


def test_what_is_known_is_not_asked_for(tmp_path):
    smooth, path = additive(30, 80, 10, 200), tmp_path / "evaluations.json"
    find = partial(search, products=(3, 1, 4, 4), tolerance=0.01)
    for times in (1, 0):
        executor = Shuffled(smooth, 3)
        assert SharedJudge(executor, {"model": "m"}, Evaluations(path)).conduct(find, lambda _: None) == find(smooth)
        assert bool(executor.asked) == bool(times)


def test_a_worker_without_an_answer_ends_the_search():
    judge = SharedJudge(Shuffled(lambda mantissas: "no space", 2), {"model": "m"}, Evaluations())
    with pytest.raises(ClusterError, match=r"^a worker has no perplexity of m: no space$"):
        judge.conduct(partial(search, products=(1, 1, 1, 1), tolerance=0.01), lambda _: None)


def test_a_worker_gives_what_a_judge_gives(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    recipe, windows = read_recipe({"weights": {"format": "int4:g32"}}), tiny.windows()
    subject = load_study_model(str(folder), recipe)
    judge = Judge(subject.model, subject.types, windows, 64, Evaluations())
    job = json.loads(json.dumps(shared_job(str(folder), recipe, windows, 64)))
    for mantissas in (None, uniform(5), (2, 3, 4, 5)):
        [one] = perplexity({**job, "mantissas": mantissas and list(mantissas)}, "c")
        assert float(one.value) == judge(mantissas) and one.command == "c"
