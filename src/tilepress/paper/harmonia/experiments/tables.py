"""Table I, and what a cache takes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ....formats.kv import PRESETS
from ...item import Ours, Track
from ...notes import ABSENT
from ...options import CHECKED, LEARNED, Checked, Learned, Subject, kv_study
from ...published import read_paper
from .settings import ACTIVATIONS, PERPLEXITY, QUANTIZED, TEXTS, cache, recipe_cache

PAPER = read_paper("harmonia")
REDUCTION = "reduction"
FIGNA = "bfp:g64:m16"  # "BFP16" in the table; its group is not said
METHODS = ("Omniquant", "FIGNA", "Anda-m4", "Anda-m6", "Anda-m8", "Harmonia, KV BFP8", "Harmonia, KV BFP4")


def table_1(
    track: Track,
    *,
    subject: Subject = QUANTIZED,
    text: str = "wikitext2",
    checked: Checked = CHECKED,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Perplexity of the baselines that are formats, and of Harmonia's whole setting."""
    column = f"{subject.model}, {PERPLEXITY}"
    (full,) = kv_study(replace(subject, weights=""), text, checked, learned).judge(
        [cache("fp16")], track, "full precision"
    )
    yield Ours("Full", column, full.model.perplexity.value, "", "weights as they come")
    study = kv_study(subject, text, checked, learned)
    for name, one in zip(METHODS, study.judge(_methods(), track, "methods"), strict=True):
        yield Ours(name, column, one.model.perplexity.value, "", f"weights {subject.weights}, rounded to nearest")
    yield from PAPER.absent("table1", ABSENT)


def _methods() -> list[Any]:
    """What METHODS name; the last is the recipe `harmonia`."""
    linear = ["fp", FIGNA, "bfp:g64:m4", "bfp:g64:m6", "bfp:g64:m8"]
    return [
        *(cache("fp16", "none", one) for one in linear),
        cache("bfp8", "none", ACTIVATIONS),
        recipe_cache(ACTIVATIONS),
    ]


def storage(track: Track) -> Iterator[Ours]:
    """What a cache takes, from the format alone."""
    four, eight = PRESETS["bfp4"], PRESETS["bfp8"]
    tokens = 4096
    wide = four.initial + four.local
    yield Ours("KV BFP8", REDUCTION, 100 * (1 - (1 + eight.mantissa) / 16), "%", "without exponents")
    yield Ours("KV BFP4", REDUCTION, 100 * (1 - (1 + four.mantissa) / 16), "%", "without exponents")
    yield Ours("KV BFP4, 4K tokens", "tokens of 4 bits", 100 * (1 - wide / tokens), "%")
    yield Ours("KV BFP4, 4K tokens", "tokens of 8 bits", 100 * wide / tokens, "%")
    yield Ours("KV BFP4, 4K tokens", "times smaller than FP16", 16 * tokens / four.bits(tokens), "x", "with exponents")


TABLES = (
    PAPER.item(
        "table1",
        "perplexity of activation and cache formats",
        "same study, smaller model",
        table_1,
        (
            "Ours is the same model in each row, weights rounded to nearest in groups of 128 where the paper has "
            "Omniquant's; Tender and M-ANT are not here.",
            "FIGNA has 16 bits of mantissa, as the table has it, in groups of 64; by Anda's Table I it has 14.",
            TEXTS,
        ),
        seconds=58,
    ),
    PAPER.item(
        "storage",
        "what the cache takes",
        "exact",
        storage,
        ("The reductions count signs and mantissas alone; 3.05 counts the shared exponents, too.",),
    ),
)
