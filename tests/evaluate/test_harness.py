"""lm-eval through our adaptor finds what our own measures find."""

import sys

import pytest

from tests.evaluate.tiny import tiny_tokenizer
from tilepress.evaluate import lm_eval_model
from tilepress.evaluate.accuracy import encode, log_likelihoods

PAIRS = [("Question: a\nAnswer:", " yes, of course"), ("Question: b c d\nAnswer:", " no"), ("One", " two three")]


@pytest.mark.parametrize("adds_bos", [False, True])
def test_log_likelihoods_are_lm_evals(model, adds_bos):
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate", reason="lm-eval's models need accelerate")
    from lm_eval.api.instance import Instance

    tokenizer = tiny_tokenizer(bos=adds_bos)
    requests = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(PAIRS)]
    theirs = lm_eval_model(model, tokenizer, batch_size=2).loglikelihood(requests, disable_tqdm=True)
    ours = log_likelihoods(model, [encode(tokenizer, *pair) for pair in PAIRS])
    assert [value for value, _ in theirs] == pytest.approx(ours, abs=1e-4)


def test_without_lm_eval_the_error_says_what_to_install(model, tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.models.huggingface", None)
    with pytest.raises(RuntimeError, match=r"pip install 'tilepress\[lm-eval\]'"):
        lm_eval_model(model, tokenizer)
