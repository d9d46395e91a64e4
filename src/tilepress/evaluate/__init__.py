"""What compression costs in quality: perplexity, divergence from a reference model, tasks.

Every figure comes from the engine, or from the model's own forward with its own cache: what is timed is what is
evaluated.
"""

from ..models.beginning import beginning
from .accuracy import Accuracy, AccuracyDifference, accuracy
from .divergence import Divergence, divergence
from .engine_model import EngineModel, in_engine
from .estimate import Estimate
from .harness import Score, lm_eval_model, lm_eval_scores, read_lm_eval_tasks
from .perplexity import Perplexity, perplexity
from .tasks import Question, read_task
from .tokens import check_same_tokenizer, tokenize
from .windows import Windowing

__all__ = [
    "Accuracy",
    "AccuracyDifference",
    "Divergence",
    "EngineModel",
    "Estimate",
    "Perplexity",
    "Question",
    "Score",
    "Windowing",
    "accuracy",
    "beginning",
    "check_same_tokenizer",
    "divergence",
    "in_engine",
    "lm_eval_model",
    "lm_eval_scores",
    "perplexity",
    "read_lm_eval_tasks",
    "read_task",
    "tokenize",
]
