"""Each study gives what the command of its name gives; and the Pareto front is what nothing beats."""

import random

import pytest

from tests.cli.conftest import call, call_for_records
from tests.figures import Figures
from tests.models import tiny
from tilepress.records import Record, to_json
from tilepress.sweep import STUDIES, front, places
from tilepress.sweep.front import Place
from tilepress.sweep.studies import run

__all__ = ["call", "call_for_records"]
SMALL = 56 * 512 * 8


def point(kind, **settings):
    """The figures of a point; its settings have dots where these have two underscores."""
    return Figures(to_json(run({"kind": kind, **{key.replace("__", "."): one for key, one in settings.items()}}, "c")))


def test_an_engine_is_what_simulate_deca_gives(call_for_records):
    ours = point("simulate deca", width=16, tables=4, queue=2, degree=3, weights="bf8", density=0.2, bandwidth=400.0,
                 latency=100.0, cores=8, parameters=SMALL, seed=1)  # fmt: skip
    engine = "--engine deca:w16:l4 --queue 2 --degree 3 --weights bf8 --density 0.2"
    memory = f"--bandwidth 400 --latency 100 --cores 8 --parameters {SMALL} --seed 1"
    theirs = call_for_records("simulate", "deca", *engine.split(), *memory.split())
    for metric in ("time", "rate", "area", "power"):
        assert ours(metric) == theirs(metric), metric


@pytest.mark.parametrize("design, mapping", [("anda", "best"), ("harmonia", "pinned"), ("deca", "best")])
def test_an_array_is_what_simulate_compare_gives(design, mapping, call_for_records):
    ours = point("simulate compare", design=design, model="llama3.2-3b", stage="decode", tokens=512, mapping=mapping,
                 bandwidth=100.0, area=0.2)  # fmt: skip
    theirs = call_for_records(
        *f"simulate compare {design} --tokens 512 --mapping {mapping} --bandwidth 100 --area 0.2".split()
    )
    for metric in ("time", "energy", "area"):
        assert ours(metric) == theirs(metric, stage="decode"), metric


def test_a_recipe_is_what_compress_and_eval_give(tmp_path, call_for_records):
    model, text = tiny.save(tmp_path / "model", max_position_embeddings=512)
    ours = point("compress", model=str(model), weights__format="uint4:g32", weights__density=0.5, eval__data=str(text),
                 eval__window=64, eval__windows=2)  # fmt: skip
    small = tmp_path / "small"
    made = call_for_records("compress", model, "-o", small, "--weights", "uint4:g32", "--density", "0.5")
    judged = call_for_records(*("eval", small, "--against", model, "--data", text, "--window", "64", "--windows", "2"))
    for metric in ("source_size", "size", "bits_per_weight"):
        assert ours(metric) == made(metric), metric
    for metric in ("perplexity", "reference_perplexity", "perplexity_ratio", "kl_divergence", "same_top1"):
        assert ours(metric) == judged(metric), metric
        assert ours(metric, statistic="standard_error") == judged(metric, statistic="standard_error")
    alone = point("compress", model=str(model), weights__format="uint4:g32", weights__density=0.5,
                  eval__data=str(text), eval__window=64, eval__windows=2, eval__against=False)  # fmt: skip
    assert alone("perplexity") == pytest.approx(judged("perplexity")) and not alone.has("kl_divergence")


def test_labels_are_the_settings():
    [first, *_] = run({"kind": "simulate deca", "dram": False, "width": 8, "parameters": SMALL}, "tilepress sweep")
    assert dict(first.labels) == {"study": "simulate deca", "dram": "false", "width": 8, "parameters": SMALL}
    assert first.command == "tilepress sweep" and first.version and first.origin == "simulated"


def test_the_front_is_what_nothing_beats():
    choose = random.Random(0).randrange
    for _ in range(50):
        ordered = sorted((choose(9), choose(9)) for _ in range(choose(30)))
        some = [Place(str(number), {}, *pair) for number, pair in enumerate(ordered)]
        unbeaten = [
            one
            for one in some
            if not any(
                other.cost <= one.cost and other.loss <= one.loss and (other.cost, other.loss) != (one.cost, one.loss)
                for other in some
            )
        ]
        assert front(some) == unbeaten


def test_points_of_other_subjects_are_not_compared():
    def records(weights, area, time):
        of = {"weights": weights}
        given = [("time", time, of), ("area", area, of), ("time", 0.0, {**of, "statistic": "p99"})]
        return [Record(metric, labels, value, "", "model", "m", "c") for metric, value, labels in given]

    study = STUDIES["simulate deca"]
    given = {"a": records("bf8", 2.0, 1.0), "b": records("bf8", 1.0, 3.0), "c": records("mxfp4", 9.0, 9.0)}
    given |= {"failed": records("bf8", 1.0, None), "none": []}
    by_subject = places(study, given)
    assert {subject: [one.point for one in some] for subject, some in by_subject.items()} == {
        (("weights", "bf8"),): ["b", "a"],
        (("weights", "mxfp4"),): ["c"],
    }


def test_every_study_refuses_what_its_points_do_not_have():
    for study in STUDIES.values():
        with pytest.raises(ValueError, match="nothing: there is no such field"):
            study.check({"kind": study.name, "nothing": 1})
