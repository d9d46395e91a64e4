"""Speed and quality of pruned weights together: figure 10."""

from collections.abc import Iterator
from dataclasses import asdict

from ...item import Ours, Track
from ...options import CHECKED, SAMPLED, SUBJECT, Checked, Sampled
from ...published import read_paper
from .settings import GAIN, numbers

PAPER = read_paper("sparamx")
BOTH_ENDS = "sparsest over densest"
ABSENT = "neither the model nor what was measured is here"


def figure_10(
    track: Track,
    *,
    model: str = SUBJECT.model,
    format: str = "bf16",
    sparsities: str = "30 50 70",
    prune: str = "wanda",
    text: str = "wikitext2",
    task: str = "piqa",
    items: int = 8,
    checked: Checked = CHECKED,
    sampled: Sampled = SAMPLED,
    written: int = 16,
    repeats: int = 2,
) -> Iterator[Ours]:
    """A model pruned more and more: decoding beside stock torch, perplexity and accuracy."""
    from ....bench.model import Settings
    from .pruning_study import prune_models
    from .speed_study import stock, unit_note

    levels = [0, *numbers(sparsities)]
    recipe = {"weights": {"format": format, "prune": prune}, "calibration": asdict(sampled)}
    study = prune_models(track, model, levels, recipe)
    judged = {level: study.judge(level, text, task, items, checked) for level in track(levels, "quality")}
    speeds = study.speeds(track, Settings(tokens=written, repeats=repeats))
    for level in levels:
        row, (perplexity, share) = f"{model}, {level} % zero", judged[level]
        yield Ours(row, "perplexity", perplexity.value, "", f"± {perplexity.error:.2g}")
        yield Ours(row, task, 100 * share.value, "%", f"± {100 * share.error:.2g}")
        yield Ours(row, GAIN, speeds[level] / speeds[0], "x", f"over {stock()}" if level else stock())
    first, last = levels[1], levels[-1]
    yield Ours(BOTH_ENDS, GAIN, speeds[last] / speeds[first], "x", unit_note())
    yield Ours(BOTH_ENDS, "perplexity", judged[last][0].value / judged[first][0].value, "x")
    yield from (
        Ours(one.row, one.column, None, one.unit, ABSENT) for one in PAPER.items["fig10"] if one.row != BOTH_ENDS
    )


PRUNED = (
    PAPER.item(
        "fig10",
        "speed-up beside quality by sparsity",
        "same study, smaller model",
        figure_10,
        (
            "The figure has GSM8K and models that were tuned after pruning; its values are not in the text.",
            "Ours is smollm2-135m, pruned and not tuned, on WikiText-2 and PIQA; the output layer is not pruned.",
        ),
        seconds=69,
    ),
)
