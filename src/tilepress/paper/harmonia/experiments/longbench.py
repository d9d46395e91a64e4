"""Table II: the paper's own arithmetic by task and by model, and the tasks that can be asked here."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

from ...item import NotPossible, Ours, Track
from ...options import CHECKED, LEARNED, Checked, Learned, Subject, kv_study
from ...published import read_paper
from .settings import ACTIVATIONS, PERPLEXITY, QUANTIZED, TEXTS, cache, recipe_cache

if TYPE_CHECKING:
    from ...studies.kv_cache import KvStudy

PAPER = read_paper("harmonia")
AVERAGE = "AVG."
CLAIMS = {
    "below Omniquant": ("Omniquant", "Harmonia"),
    "above KIVI-q": ("Harmonia", "KIVI-q"),
    "above naive": ("Harmonia", "Harmonia-Naïve"),
}
BETTER = ("Llama-3.2-3B-Instruct", "Llama-3.1-8B-Instruct")  # than Omniquant, as the text has it
METHODS = ("Full", "Omniquant", "Harmonia-Naïve", "Harmonia")
FOUND = "facts found"


def table2(track: Track) -> Iterator[Ours]:
    """Averages of the printed tasks; and of each task, the printed claims as means of the five models."""
    scores = PAPER.values("longbench")
    rows, tasks = (list(dict.fromkeys(cell[axis] for cell in scores)) for axis in (0, 1))
    for row in rows:
        yield Ours(row, AVERAGE, mean(scores[row, task] for task in tasks), "%")
    for task in tasks:
        of_task = {row: scores[row, task] for row in rows}
        for name, values in _claims(of_task).items():
            yield Ours(f"{name}, mean of five models", task, mean(values), "%")


def table2_means(track: Track) -> Iterator[Ours]:
    """Means over models, from the averages that are printed."""
    averages = {row: value for (row, _), value in PAPER.values("table2").items()}
    for name, values in _claims(averages).items():
        yield Ours("mean of five models", name, mean(values), "%")
    for model in BETTER:
        above = averages[f"{model}, Harmonia"] - averages[f"{model}, Omniquant"]
        yield Ours(model, "above Omniquant", above, "%")


def _claims(scores: dict[str, float]) -> dict[str, list[float]]:
    """Claim → points of each model; `scores`: "MODEL, METHOD" → one score."""
    models = dict.fromkeys(row.rpartition(", ")[0] for row in scores)
    return {
        name: [scores[f"{model}, {one}"] - scores[f"{model}, {other}"] for model in models]
        for name, (one, other) in CLAIMS.items()
    }


def table2_tasks(
    track: Track,
    *,
    subject: Subject = QUANTIZED,
    text: str = "wikitext2",
    others: str = "ptb pydoc",
    facts: int = 5,
    items: int = 10,
    checked: Checked = CHECKED,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Table II's methods on texts, facts to find and questions; `text` is for scales, too."""
    full = kv_study(replace(subject, weights=""), text, checked, learned)
    packed = kv_study(subject, text, checked, learned)
    caches = [cache("fp16"), cache("bfp:m4", "none", ACTIVATIONS), recipe_cache(ACTIVATIONS)]
    asked = [(full, cache("fp16")), *((packed, one) for one in caches)]
    for name in (text, *others.split()):
        yield from _perplexities(full, packed, caches, name, track)
    for method, (study, one) in zip(METHODS, asked, strict=True):
        share = study.retrieval(one, checked.tokens, facts, track)
        yield Ours(method, FOUND, 100 * share.value, "%", f"± {100 * share.error:.2g}, {facts} facts")
        score = study.accuracy(one, "piqa", items, track).plain
        yield Ours(method, "piqa", 100 * score.value, "%", f"± {100 * score.error:.2g}, {items} questions")


def _perplexities(full: "KvStudy", packed: "KvStudy", caches: list[Any], text: str, track: Track) -> Iterator[Ours]:
    column = f"{PERPLEXITY}, {text}"
    try:
        judged = [*_on(full, text).judge(caches[:1], track, text), *_on(packed, text).judge(caches, track, text)]
    except NotPossible as reason:
        yield from (Ours(method, column, None, "", str(reason)) for method in METHODS)
        return
    for method, one in zip(METHODS, judged, strict=True):
        value = one.model.perplexity
        yield Ours(method, column, value.value, "", f"± {value.error:.2g}")


def _on(study: "KvStudy", text: str) -> "KvStudy":
    """The study, with its scales, checked on another text."""
    from ....models.texts import TextUnavailableError
    from ...studies.activations import parts_of

    try:
        return replace(study, checked=parts_of(text)[1])
    except TextUnavailableError as error:
        raise NotPossible(str(error)) from error


LONGBENCH = (
    PAPER.item(
        "table2",
        "averages of nine LongBench tasks, and each task",
        "exact",
        table2,
        (
            "Averages of the printed tasks; rows of claims show which tasks they come from, in points.",
            "The tasks themselves cannot be run here: neither LongBench's texts nor the five models are here.",
        ),
    ),
    PAPER.item(
        "table2-means",
        "what the averages of Table II say of Harmonia",
        "exact",
        table2_means,
        ("Of the printed averages of nine LongBench tasks; in points.",),
    ),
    PAPER.item(
        "table2-tasks",
        "Table II's methods on texts, facts and questions that are here",
        "same study, smaller model",
        table2_tasks,
        (
            "None of LongBench's tasks is here. In their place: perplexity of three texts (encyclopaedia, newspaper, "
            "documentation), facts to repeat from a text, and PIQA's questions, which are short.",
            "Omniquant's weights are rounded to nearest here, in groups of 128. KIVI-q's quantiser is not here.",
            "Five facts and ten questions, the defaults, tell no method from another: --set facts=30 --set items=200.",
            TEXTS,
        ),
        seconds=190,
    ),
)
