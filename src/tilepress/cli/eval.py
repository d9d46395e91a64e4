"""`tilepress eval`: what a model is worth on a text, against another model, and on a task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import models
from .output import (
    Json,
    Model,
    Recorder,
    TextOnly,
    TrustRemoteCode,
    WriteCard,
    hush_transformers,
    hushed,
    print_table,
    progress,
)
from .output import write_card as keep
from .stdin import NAME, is_stdin, read_stdin

if TYPE_CHECKING:
    from ..evaluate import Accuracy, Divergence, Estimate, Perplexity, Question, Score, Windowing
    from ..models import LoadedModel


@dataclass(frozen=True)
class Figure:
    """`metric` and `statistic` for records, `words` for people; no error where there is none to give."""

    metric: str
    words: str
    value: float
    error: float | None = None
    unit: str = ""
    statistic: str | None = None


def evaluate(
    model: Model,
    data: Annotated[
        str | None,
        typer.Option(
            help="A text file, - for standard input, wikitext2, ptb or pydoc; wikitext2 where found, else pydoc."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="A task instead of a text: piqa, or piqa:FILE for items of your own.")
    ] = None,
    lm_eval: Annotated[
        str | None,
        typer.Option(metavar="TASKS", help="Tasks of lm-eval, with commas between."),
    ] = None,
    lm_eval_folder: Annotated[
        Path | None, typer.Option(help="A folder with tasks of your own for lm-eval, in YAML files.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(autocompletion=models, help="A reference model to compare with, on the text and on tasks."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=2, help="Tokens seen at once; 2048, or what the model takes if less.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Tokens from window to window; only new ones count. As long as a window.")
    ] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="Only the first windows of the text.")] = None,
    items: Annotated[int | None, typer.Option(min=1, help="Only the first items of each task.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Windows (1 if not given) or choices (8) computed at once.")
    ] = None,
    acts: Annotated[
        str | None,
        typer.Option(help="Round activations: bf16, int8, bfp:gN:mN or anda:7,7,6,5, on weights of any kind."),
    ] = None,
    kv: Annotated[
        str | None,
        typer.Option(
            help="KV cache: fp16, bfp8, bfp4n+rotate, sparse:k30,v50 …; what the model remembers if not given."
        ),
    ] = None,
    smoothing: Annotated[str | None, typer.Option(help="Of keys in a bfp cache: none or online.")] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda, where packed layers are unpacked.")] = "cpu",
    bos: Annotated[
        bool | None,
        typer.Option(help="Begin each window with the tokenizer's token for that, or not; else as it has it."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    write_card: WriteCard = False,
    json: Json = False,
) -> None:
    """Measure a model: perplexity on a text, divergence from a reference model, accuracy on tasks.

    The text is tokenised whole, as it is, and cut into windows; the last one may be shorter. Where the tokenizer
    puts a token before each text, as Gemma's and Llama 3's do, each window begins with it. Errors are standard errors
    of the mean over tokens or items. With --against: KL divergence from the reference's predictions, how often both
    hold the same token most likely, and differences of accuracy, whose errors are of token by token and item by item.
    Tasks are measured alone unless --data or --against asks for the text too; those
    of lm-eval (pip install 'tilepress\\[lm-eval]') fetch their data from the Hugging Face hub unless their YAML file
    names a file that is here. --acts
    rounds the inputs of linear layers, as packed layers of the same format would, for judging a format by itself; --kv
    does the same to attention, with the numbers that a packed cache gives token by token.

    Example: tilepress eval smollm2-135m --data wikitext2 --windows 4
    """
    from ..evaluate import Windowing, beginning, in_engine, read_task
    from ..models import load_model
    from ..models.kept_records import check_keeps_records
    from ..models.study_model import on_device, round_cache
    from ..models.texts import evaluation_text

    if lm_eval_folder is not None and lm_eval is None:
        raise ValueError(f"{lm_eval_folder} holds tasks for --lm-eval: name some of them there")
    if smoothing and not kv:
        raise ValueError("--smoothing is of the cache that --kv names: name one")
    folder = check_keeps_records(model) if write_card else None
    # What can be missing is looked for before the model is loaded, which takes longer.
    questions = read_task(task)[:items] if task else []
    if is_stdin(data):
        text: tuple[str, str] | None = (NAME, read_stdin("a text"))
    else:
        text = evaluation_text(data) if data or against or not (task or lm_eval) else None
    hush_transformers()
    harness_tasks = _harness_tasks(_names(lm_eval), lm_eval_folder, json) if lm_eval else None
    load = partial(load_model, trust_remote_code=trust_remote_code, text_only=text_only)
    loaded = on_device(load(model), device, acts)
    measured = replace(loaded, model=in_engine(loaded.model, kv, smoothing or "none"))
    round_cache(loaded.model, kv, smoothing or "none")
    rounded = {"activations": acts, "kv": kv, "smoothing": smoothing}
    recorder = Recorder(model=model, **{name: format for name, format in rounded.items() if format})
    reference = on_device(load(against), device) if against else None
    other = replace(reference, model=in_engine(reference.model)) if reference else None
    if text:
        windowing = Windowing(window, stride, windows, batch or 1, beginning(loaded.tokenizer, bos))
        figures = _text_figures(measured, other, text[1], windowing, json)
        _show(recorder, _verdict(f"{model} on {text[0]}", against, figures), figures, json, text=text[0])
    if task:
        figures = _task_figures(measured, other, questions, batch or 8, json)
        _show(recorder, _verdict(f"{model} on {task}", against, figures), figures, json, task=task)
    if harness_tasks:
        for name, figures in _harness_figures(loaded, reference, harness_tasks, items, batch or 8, json).items():
            _show(recorder, _verdict(f"{model} on {name}", against, figures), figures, json, task=name)
    if folder is not None:
        keep(folder, recorder.records)
    if json:
        recorder.print_json()


def _text_figures(
    loaded: "LoadedModel", reference: "LoadedModel | None", text: str, windowing: "Windowing", quiet: bool
) -> list[Figure]:
    from ..evaluate import check_same_tokenizer, divergence, perplexity, tokenize

    tokens = tokenize(loaded.tokenizer, text)
    if reference is not None:
        check_same_tokenizer(loaded.tokenizer, reference.tokenizer, text)
    with progress(quiet) as bar:
        track = partial(bar.track, description="windows")
        if reference is None:
            return _perplexity_figures(perplexity(loaded.model, tokens, windowing, track))
        return _divergence_figures(divergence(loaded.model, reference.model, tokens, windowing, track))


def _task_figures(
    loaded: "LoadedModel", reference: "LoadedModel | None", questions: "Sequence[Question]", batch: int, quiet: bool
) -> list[Figure]:
    from ..evaluate import accuracy

    with progress(quiet) as bar:
        track = partial(bar.track, description="choices")
        score, *others = [
            accuracy(one.model, one.tokenizer, questions, batch, track) for one in (loaded, reference) if one
        ]
    return [
        _figure("accuracy", "accuracy", score.plain),
        _figure("accuracy_normalised", "accuracy, by likelihood a character", score.normalised),
        *[figure for other in others for figure in _accuracy_differences(score, other)],
        Figure("items", "items", score.questions),
    ]


def _accuracy_differences(score: "Accuracy", reference: "Accuracy") -> list[Figure]:
    paired = score.minus(reference)
    return [
        _figure("reference_accuracy", "accuracy of the reference", reference.plain),
        _figure("reference_accuracy_normalised", "the reference's, by likelihood a character", reference.normalised),
        _figure("accuracy_difference", "accuracy minus the reference's", paired.plain),
        _figure("accuracy_normalised_difference", "the same by likelihood a character", paired.normalised),
        _figure("same_verdict", "items that both have right or both have wrong", paired.same),
    ]


def _harness_tasks(names: list[str], folder: Path | None, quiet: bool) -> Any:
    from ..evaluate import read_lm_eval_tasks

    with hushed(quiet), progress(quiet) as bar:
        bar.add_task("looking for tasks", total=None)
        return read_lm_eval_tasks(names, folder)


def _harness_figures(
    loaded: "LoadedModel", reference: "LoadedModel | None", tasks: Any, items: int | None, batch: int, quiet: bool
) -> dict[str, list[Figure]]:
    """Task → figures."""
    from ..evaluate import lm_eval_scores

    with hushed(quiet):
        scores = lm_eval_scores(loaded.model, loaded.tokenizer, tasks, items, batch)
        theirs = [] if reference is None else lm_eval_scores(reference.model, reference.tokenizer, tasks, items, batch)
    others = {(score.task, score.metric): score for score in theirs}
    return {task: _score_figures(list(group), others) for task, group in groupby(scores, key=lambda score: score.task)}


def _score_figures(scores: "Sequence[Score]", others: "Mapping[tuple[str, str], Score]") -> list[Figure]:
    """`others`: the reference's scores, by task and metric."""
    figures = [
        figure for score in scores for figure in _score_with_other(score, others.get((score.task, score.metric)))
    ]
    return [*figures, Figure("items", "items", scores[0].items)]


def _score_with_other(score: "Score", other: "Score | None") -> list[Figure]:
    metric = score.metric
    figures = [_figure(metric, metric, score.estimate)]
    if other is not None:
        figures.append(_figure(f"reference_{metric}", f"{metric} of the reference", other.estimate))
        if (gain := score.minus(other)) is not None:
            figures.append(_figure(f"{metric}_difference", f"{metric} minus the reference's", gain))
    return figures


def _names(listed: str) -> list[str]:
    names = [name.strip() for name in listed.split(",")]
    if not all(names):
        raise ValueError(f"--lm-eval takes names of tasks with commas between them, not {listed!r}")
    return names


def _perplexity_figures(result: "Perplexity") -> list[Figure]:
    tokens = Figure("tokens", "tokens that count", result.tokens)
    return [_figure("perplexity", "perplexity", result.perplexity), tokens]


def _divergence_figures(result: "Divergence") -> list[Figure]:
    percentiles = [
        Figure("kl_divergence", f"KL divergence, {percent:g} % within", value, unit="nat", statistic=f"p{percent:g}")
        for percent, value in result.kl_percentiles.items()
    ]
    return [
        *_perplexity_figures(result.model),
        _figure("reference_perplexity", "perplexity of the reference", result.reference.perplexity),
        _figure("perplexity_ratio", "perplexity over the reference's", result.ratio),
        _figure("kl_divergence", "KL divergence, mean", result.kl, "nat"),
        *percentiles,
        _figure("same_top1", "same top-1 token", result.same_top),
    ]


def _figure(metric: str, words: str, estimate: "Estimate", unit: str = "") -> Figure:
    return Figure(metric, words, estimate.value, estimate.error, unit)


def _show(recorder: Recorder, title: str, figures: Sequence[Figure], json: bool, **labels: str) -> None:
    """Record `figures` on a text or a task, which `labels` name, and print them unless `json`."""
    for figure in figures:
        recorder.add(figure.metric, figure.value, figure.unit, **labels, statistic=figure.statistic)
        if figure.error is not None:
            recorder.add(figure.metric, figure.error, figure.unit, **labels, statistic="standard_error")
    if not json:
        print_table(title, ["what", "value", "± error", "unit"], map(_row, figures))


def _verdict(what: str, against: str | None, figures: Sequence[Figure]) -> str:
    """The conclusion, as the title of the table that it rests on."""
    found = {figure.metric: figure for figure in reversed(figures) if figure.statistic is None}
    if "perplexity_ratio" not in found:
        first = figures[0]
        difference = found.get(f"{first.metric}_difference")
        compared = f", {_with_error(difference, '+.4f')} against {against}" if difference else ""
        return f"{what}: {first.words} {_with_error(first)}{compared}"
    ratio, same = found["perplexity_ratio"], found["same_top1"]
    change = Figure("", "", 100 * (ratio.value - 1), 100 * (ratio.error or 0))
    clear = "" if abs(change.value) > 2 * (change.error or 0) else " (no more than its error allows)"
    return (
        f"{what}: perplexity {_with_error(change, '+.2f')} % against {against}{clear}, "
        f"the same token most likely in {100 * same.value:.1f} %"
    )


def _with_error(figure: Figure, form: str = ".4f") -> str:
    """A number of items has neither decimals nor an error."""
    value = format(figure.value, form) if isinstance(figure.value, float) else str(figure.value)
    return value if figure.error is None else f"{value} ± {format(figure.error, form.lstrip('+'))}"


def _row(figure: Figure) -> list[str]:
    value = f"{figure.value:.5f}" if isinstance(figure.value, float) else str(figure.value)
    return [figure.words, value, "" if figure.error is None else f"{figure.error:.5f}", figure.unit]
