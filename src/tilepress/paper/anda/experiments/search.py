"""The search for mantissas: its time, figures 9, 14 and 18, and Table II; options as in `sensitivity.py`."""

from collections.abc import Iterator
from dataclasses import asdict

from ....compression.search import bops_saving
from ....formats import TENSOR_TYPES
from ...item import Ours, Track
from ...notes import ABSENT, HERE
from ...options import CHECKED, SAMPLED, SUBJECT, Checked, Sampled, Subject, activation_study
from ...published import read_paper
from .mantissas import tuple_text

PAPER = read_paper("anda")
TOLERANCES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
COMBINATION, ITERATIONS = "combination", "iterations"
PTB = "Of a text without a part for training the first half is searched on and the second is checked on."


def search_time(
    track: Track,
    *,
    model: str = SUBJECT.model,
    text: str = "wikitext2",
    tolerance: float = 0.01,
    sampled: Sampled = SAMPLED,
    batch: int = 1,
) -> Iterator[Ours]:
    """The search and GPTQ, timed one after the other on this CPU and the same text."""
    from ...studies.activations import Sizes, gptq_seconds

    study = activation_study(Subject(model, batch=batch), "rtn", text, sampled)
    search = study.search_seconds(tolerance, track)
    (gptq,) = [gptq_seconds(model, text, Sizes(**asdict(sampled))) for _ in track(range(1), "GPTQ")]
    yield Ours(model, "search", search, "s")
    yield Ours(model, "GPTQ", gptq, "s")
    yield Ours("any model", "times as fast as GPTQ", gptq / search, "x", f"{model} alone, both on this CPU")
    yield Ours("any model", "times as fast as Omniquant", None, "x", "Omniquant is not here")


def figure9(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    tolerance: float = 0.01,
    quantize: str = "rtn",
    sampled: Sampled = SAMPLED,
) -> Iterator[Ours]:
    """The search step by step."""
    study = activation_study(subject, quantize, text, sampled)
    result, products = study.search(tolerance, track), study.subject.products
    for step in result.steps:
        row = f"{subject.model}, iteration {step.number:02}"
        yield Ours(row, COMBINATION, tuple_text(step.mantissas), "", "taken" if step.accepted else "")
        yield Ours(row, "loss", 100 * step.loss, "%")
        yield Ours(row, "BOP saving", bops_saving(step.mantissas, products), "x")
    last = max((step.number for step in result.steps if step.accepted), default=len(result.steps))
    note = "" if result.within else "nothing is within"
    yield Ours(subject.model, COMBINATION, tuple_text(result.mantissas), "", note)
    yield Ours(subject.model, ITERATIONS, last, "")
    yield from PAPER.absent("fig9", ABSENT)


def figure14(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    texts: str = "wikitext2 ptb",
    quantize: str = "rtn",
    sampled: Sampled = SAMPLED,
) -> Iterator[Ours]:
    """The combinations that are found for 0.1 % and 1 %."""
    for text in texts.split():
        study = activation_study(subject, quantize, text, sampled)
        for tolerance in (0.001, 0.01):
            result = study.search(tolerance, track)
            row, note = f"{subject.model}, {text}, {100 * tolerance:g} %", "" if result.within else "nothing is within"
            for kind, bits in zip(TENSOR_TYPES, result.mantissas, strict=True):
                yield Ours(row, kind, bits, "bit", note)


def table_2(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    texts: str = "wikitext2 ptb",
    quantize: str = "rtn",
    checked: Checked = CHECKED,
    sampled: Sampled = SAMPLED,
) -> Iterator[Ours]:
    """Perplexity, loss and BOP saving of baselines and searched combinations, on text that was not searched on."""
    from ...studies.activations import table_schemes

    for text in texts.split():
        study = activation_study(subject, quantize, text, checked, sampled)
        searches = [study.search(tolerance, track) for tolerance in (0.001, 0.01)]
        for cost in study.costs(table_schemes(searches), track, f"{text}: formats"):
            row, format = f"{subject.model}, {text}, {cost.scheme.name}", cost.scheme.format
            note = "" if format is None else str(format)
            yield Ours(row, "perplexity", cost.perplexity.perplexity.value, "", note)
            yield Ours(row, "loss", 100 * cost.loss, "%", note)
            yield Ours(row, "BOP saving", cost.saving, "x", note)
    yield from PAPER.absent("table2", ABSENT)


def figure18(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    quantize: str = "rtn",
    sampled: Sampled = SAMPLED,
) -> Iterator[Ours]:
    """BOP saving by tolerance."""
    study = activation_study(subject, quantize, text, sampled)
    for tolerance in TOLERANCES:
        result = study.search(tolerance, track)
        note = tuple_text(result.mantissas) + ("" if result.within else ", and nothing is within")
        yield Ours(subject.model, f"{100 * tolerance:g} %", result.saving, "x", note)


# The search is timed before figure 9, which then has nothing to compute again.
SEARCH = (
    PAPER.item(
        "search-time",
        "the search beside weight-only quantisation",
        "measured here",
        search_time,
        ("GPTQ is ours, of int4:g128, a block at a time; the paper's comparison is of its authors' codes on a GPU.",),
        seconds=79,
    ),
    PAPER.item(
        "fig9",
        "the search, step by step",
        "same study, smaller model",
        figure9,
        (HERE, "`tilepress search` does the same with a plot, --brute-force and --time-gptq."),
    ),
    PAPER.item(
        "fig14",
        "combinations for 0.1 % and 1 %",
        "same study, smaller model",
        figure14,
        (
            HERE,
            PTB,
            "The figure's combinations are not in the text; those that fit Table II are anda/fig14-candidates.",
        ),
        seconds=47,
    ),
    PAPER.item(
        "table2",
        "perplexity, loss and BOP saving of activation formats",
        "same study, smaller model",
        table_2,
        (
            HERE,
            PTB,
            "FIGNA is 13 bits and VS-Quant 4 bits of block floating point in groups of 64, without retraining, as the "
            "paper has them; Table I gives FIGNA 14 bits. Harmonia's BFP8, groups of 32, is ours to add.",
        ),
        seconds=21,
    ),
    PAPER.item(
        "fig18",
        "BOP saving by tolerance",
        "same study, smaller model",
        figure18,
        (HERE, "The figure's vertical axes, speed and energy, belong to the simulator."),
        seconds=18,
    ),
)
