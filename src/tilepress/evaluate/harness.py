"""Our models under lm-eval, for the many tasks it knows."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from math import isclose, nan
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .estimate import Estimate

FEWSHOT_SEED = 1234  # lm-eval's own, which chooses the examples in a prompt
RESAMPLINGS = 1000  # for the errors of metrics that are no plain mean


@dataclass(frozen=True)
class Score:
    """What lm-eval calls `metric` ("acc", or "exact_match.strict" of answers filtered by "strict") on `items` items of
    `task`, a task or a group of them. values: item → its own, where the figure is their mean."""

    task: str
    metric: str
    estimate: Estimate
    items: int
    values: Mapping[int, float] = field(default_factory=dict, repr=False, compare=False)

    def minus(self, reference: "Score") -> Estimate | None:
        """The gain over another model on the same items; None where items have no values, as in groups of tasks."""
        if not self.values or self.values.keys() != reference.values.keys():
            return None
        return Estimate.of(torch.tensor([value - reference.values[item] for item, value in self.values.items()]))


def lm_eval_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int = 1) -> Any:
    """lm-eval's own wrapper (HFLM) around `model`: `lm_eval.simple_evaluate(lm_eval_model(…), tasks=["piqa"])`."""
    huggingface = _part_of_lm_eval("models.huggingface")
    options = {"batch_size": batch_size, "trust_remote_code": False}
    return huggingface.HFLM(pretrained=model, tokenizer=tokenizer, **options)


def read_lm_eval_tasks(names: Sequence[str], folder: str | Path | None = None) -> Any:
    """The tasks, groups and tags `names` (or patterns, "mmlu_*") with their data, as lm-eval's TaskManager loads them.

    folder: of tasks in YAML files, which go before those of the same name that lm-eval brings along.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = _task_manager(names, folder)
    unknown = next((name for name in names if not manager.match_tasks([name])), None)
    if unknown is not None:
        near = get_close_matches(unknown, manager.all_tasks, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`lm-eval ls tasks` lists them"
        raise ValueError(f"lm-eval knows no task {unknown!r}: {hint}")
    try:
        loaded = manager.load(manager.match_tasks(list(names)))
    except OSError as error:
        raise RuntimeError(
            f"the data of {', '.join(names)} could not be had ({_reason(error)}): run this once where there is a "
            "network, or give a folder of tasks whose data is here"
        ) from error
    except Exception as error:  # a task may be Python code, and fail in any way
        raise RuntimeError(f"lm-eval cannot load {', '.join(names)}: {_reason(error)}") from error
    for task in loaded["tasks"].values():
        if task.get_config("num_fewshot") is None:
            task.set_config("num_fewshot", 0)
        task.set_fewshot_seed(FEWSHOT_SEED)
    return loaded


def lm_eval_scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tasks: Any,
    items: int | None = None,
    batch_size: int = 1,
) -> list[Score]:
    """`model` on what `read_lm_eval_tasks` gave, on the first `items` of each task if that is given."""
    harness = lm_eval_model(model, tokenizer, batch_size)
    evaluate = _part_of_lm_eval("evaluator").evaluate
    output = evaluate(harness, tasks, limit=items, bootstrap_iters=RESAMPLINGS, log_samples=True)
    results, samples = output["results"] | output.get("groups", {}), output.get("samples", {})
    return [score for task, figures in results.items() for score in _scores(task, figures, samples.get(task, ()))]


def _scores(task: str, figures: Mapping[str, Any], samples: Sequence[Mapping[str, Any]] = ()) -> Iterator[Score]:
    """Figures are called "metric,filter", their errors "metric_stderr,filter"; `samples` are the items."""
    for key, value in figures.items():
        metric, comma, chosen = key.partition(",")
        if comma and not metric.endswith("_stderr") and isinstance(value, Real):
            error = figures.get(f"{metric}_stderr,{chosen}")
            name = metric if chosen == "none" else f"{metric}.{chosen}"
            estimate = Estimate(float(value), float(error) if isinstance(error, Real) else nan)
            yield Score(task, name, estimate, figures["sample_len"], _values(samples, metric, chosen, estimate.value))


def _values(samples: Sequence[Mapping[str, Any]], metric: str, chosen: str, mean: float) -> dict[int, float]:
    """Item → its value of the metric; none where the figure is not their mean, as an F1 is not."""
    mine = {int(one["doc_id"]): one.get(metric) for one in samples if one.get("filter") == chosen}
    values = {item: float(value) for item, value in mine.items() if isinstance(value, Real)}
    is_mean = len(values) == len(mine) > 0 and isclose(sum(values.values()) / len(values), mean, abs_tol=1e-9)
    return values if is_mean else {}


def _task_manager(names: Sequence[str], folder: str | Path | None) -> Any:
    """With the folder's tasks alone where those are given: to look through all of lm-eval's takes ten seconds."""
    task_manager = _part_of_lm_eval("tasks").TaskManager
    if folder is not None:
        if not Path(folder).is_dir():
            raise ValueError(f"{folder} is no folder: give one with tasks of lm-eval in YAML files")
        local = task_manager(include_path=str(folder), include_defaults=False)
        if set(names) <= set(local.all_subtasks):
            return local
    return task_manager(include_path=None if folder is None else str(folder))


def _part_of_lm_eval(name: str) -> Any:
    try:
        return import_module(f"lm_eval.{name}")
    except ImportError as error:
        raise RuntimeError(f"{error}; running lm-eval needs: pip install 'tilepress[lm-eval]'") from error


def _reason(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
