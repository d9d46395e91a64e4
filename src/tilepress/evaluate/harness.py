"""Our models under lm-eval, for the many tasks it knows."""

from importlib import import_module
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase


def lm_eval_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int = 1) -> Any:
    """lm-eval's own wrapper (HFLM) around `model`: `lm_eval.simple_evaluate(lm_eval_model(…), tasks=["piqa"])`."""
    try:
        huggingface = import_module("lm_eval.models.huggingface")
    except ImportError as error:
        raise RuntimeError(f"{error}; running lm-eval needs: pip install 'tilepress[lm-eval]'") from error
    return huggingface.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
