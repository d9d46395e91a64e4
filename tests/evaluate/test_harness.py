"""lm-eval through our adaptor finds what our own measures find."""

import math
import sys

import pytest

from tests.evaluate.tiny import GOALS, tiny_model, tiny_tokenizer, write_lm_eval_tasks
from tilepress.evaluate import Question, accuracy, lm_eval_model, lm_eval_scores, read_lm_eval_tasks
from tilepress.evaluate.accuracy import encode, log_likelihoods
from tilepress.evaluate.harness import _scores
from tilepress.models import compress_model
from tilepress.nn import PackedLinear, decoding

PAIRS = [("Question: a\nAnswer:", " yes, of course"), ("Question: b c d\nAnswer:", " no"), ("One", " two three")]


@pytest.fixture
def harness():
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate", reason="lm-eval's models need accelerate")


@pytest.fixture
def folder(harness, tmp_path):
    return write_lm_eval_tasks(tmp_path)


@pytest.mark.parametrize("adds_bos", [False, True])
def test_log_likelihoods_are_lm_evals(model, adds_bos, harness):
    from lm_eval.api.instance import Instance

    tokenizer = tiny_tokenizer(bos=adds_bos)
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(PAIRS)]
    theirs = lm_eval_model(model, tokenizer, batch_size=2).loglikelihood(requests, disable_tqdm=True)
    ours = log_likelihoods(model, [encode(tokenizer, *pair) for pair in PAIRS])
    assert [value for value, _ in theirs] == pytest.approx(ours, abs=1e-4)


def test_scores_of_a_local_task_are_those_of_our_own_measure(model, tokenizer, folder):
    scores = lm_eval_scores(model, tokenizer, read_lm_eval_tasks(["eggs"], folder), batch_size=2)
    questions = [
        Question(f"Question: {goal}\nAnswer:", ("in water", "in a bag"), i % 2) for i, goal in enumerate(GOALS)
    ]
    expected = accuracy(model, tokenizer, questions)
    assert [(score.task, score.metric, score.items) for score in scores] == [
        ("eggs", "acc", 5),
        ("eggs", "acc_norm", 5),
    ]
    assert [score.estimate.value for score in scores] == [expected.plain.value, expected.normalised.value]
    assert [score.estimate.error for score in scores] == pytest.approx(
        [expected.plain.error, expected.normalised.error], abs=1e-9
    )


def test_tasks_run_on_packed_layers_and_decode_natively(tokenizer, folder, monkeypatch):
    packed, decoded = [], []
    forward, decode = PackedLinear.forward, decoding._NativeLayers.decode
    monkeypatch.setattr(PackedLinear, "forward", lambda self, x: packed.append(self) or forward(self, x))
    monkeypatch.setattr(decoding._NativeLayers, "decode", lambda *arguments: decoded.append(1) or decode(*arguments))
    model = compress_model(tiny_model(), {"activations": {"format": "int8"}})
    lm_eval_scores(model, tokenizer, read_lm_eval_tasks(["eggs"], folder), items=1)
    assert len(set(packed)) == sum(isinstance(module, PackedLinear) for module in model.modules()) and not decoded
    scores = lm_eval_scores(model, tokenizer, read_lm_eval_tasks(["answers"], folder), items=2)
    assert [(score.metric, score.items) for score in scores] == [("exact_match", 2)] and decoded


def test_filters_are_part_of_a_metrics_name_and_errors_may_be_missing():
    figures = {"alias": "a", "sample_len": 7, "em,strict": 0.5, "em_stderr,strict": "N/A", "acc,none": 1}
    (strict, plain) = _scores("group", figures)
    assert (strict.task, strict.metric, strict.estimate.value, strict.items) == ("group", "em.strict", 0.5, 7)
    assert math.isnan(strict.estimate.error) and (plain.metric, plain.estimate.value) == ("acc", 1.0)


def test_gains_are_of_item_by_item_where_a_figure_is_a_mean():
    def score(values, filter="none"):
        samples = [{"doc_id": i, "filter": filter, "acc": value, "f1": (1.0, value)} for i, value in enumerate(values)]
        figures = {"sample_len": 4, f"acc,{filter}": sum(values) / 4, f"f1,{filter}": 0.5}
        return list(_scores("one", figures, samples))

    (ours, f1), (theirs, _), (other, _) = score([1.0, 0.0, 1.0, 1.0]), score([1.0, 0.0, 0.0, 1.0]), score([1.0])
    gain = ours.minus(theirs)
    assert (gain.value, gain.error) == (0.25, pytest.approx(0.25))
    assert f1.minus(f1) is None and ours.minus(other) is None
    (filtered, _) = score([1.0, 0.0, 0.0, 0.0], "strict")
    assert filtered.metric == "acc.strict" and filtered.minus(ours).value == -0.5


def test_the_same_model_gains_nothing(model, tokenizer, folder):
    scores = lm_eval_scores(model, tokenizer, read_lm_eval_tasks(["eggs"], folder), batch_size=2)
    assert [(one.minus(one).value, one.minus(one).error) for one in scores] == [(0.0, 0.0)] * 2
    assert [sum(one.values.values()) / 5 for one in scores] == [one.estimate.value for one in scores]


def test_tasks_that_cannot_be_had(folder, monkeypatch):
    with pytest.raises(ValueError, match="nowhere is no folder: give one with tasks of lm-eval"):
        read_lm_eval_tasks(["eggs"], "nowhere")
    from lm_eval.tasks import TaskManager

    real = TaskManager.__init__
    monkeypatch.setattr(  # to look through all that lm-eval brings along takes ten seconds
        TaskManager, "__init__", lambda self, include_path=None, **_: real(self, None, include_path, False)
    )
    with pytest.raises(ValueError, match="lm-eval knows no task 'egs': did you mean 'eggs'"):
        read_lm_eval_tasks(["eggs", "egs"], folder)
    (folder / "eggs.jsonl").unlink()
    with pytest.raises(
        RuntimeError, match=r"the data of eggs could not be had \(.*\): run this once where there is a net"
    ):
        read_lm_eval_tasks(["eggs"], folder)
    (folder / "eggs.yaml").write_text("task: eggs\noutput_type: no_such_type\n")
    with pytest.raises(RuntimeError, match="lm-eval cannot load eggs: "):
        read_lm_eval_tasks(["eggs"], folder)


def test_without_lm_eval_the_error_says_what_to_install(model, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.models.huggingface", None)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    for use in (lambda: lm_eval_model(model, tokenizer), lambda: read_lm_eval_tasks(["piqa"])):
        with pytest.raises(RuntimeError, match=r"pip install 'tilepress\[lm-eval\]'"):
            use()
