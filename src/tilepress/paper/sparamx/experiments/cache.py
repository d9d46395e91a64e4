"""A KV cache whose smallest values are zero: figures 14, 15, 17 and 18.

Studies of quality run on a model that is here; the paper's Llama 3 8B stands beside it as printed. They take `device`
(cuda where there is one) and how much text there shall be. The paper prunes what the prompt left, once; a cache that
grows is pruned a token at a time, of halves when 32 are full.
"""

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from ...item import Ours, Track
from ...notes import ABSENT
from ...options import CHECKED, SUBJECT, Checked, Subject, kv_study
from ...published import read_paper
from .settings import FEW_LAYERS, FIGURE, GAIN, LLAMA, Decoding, joined, named, numbers

if TYPE_CHECKING:
    from ...studies.kv_cache import KvStudy

EMBEDDED = SUBJECT.model
PAPER = read_paper("sparamx")
MANY = Subject(batch=8)
LEVELS = "0 30 50 70"  # % of keys, and of values, that are zero
CHOSEN = (30, 50)  # by the paper


def _all_pairs(levels: str) -> list[tuple[int, int]]:
    """Every two of `levels`, none at all, and what the paper chose."""
    shares = numbers(levels)
    return list(dict.fromkeys([*product(shares, shares), (0, 0), CHOSEN]))


def _cache(keys: int, values: int, number: str = "") -> Any:
    from ....evaluate.kv_studies import Cache

    sparse = f"sparse:k{keys},v{values}"
    return Cache(f"{number}+{sparse}" if number else sparse)


def figure14(
    track: Track,
    *,
    subject: Subject = MANY,
    task: str = "piqa",
    number: str = "bfp8",
    levels: str = "0 30 50",
    items: int = 8,
) -> Iterator[Ours]:
    """Accuracy by how many keys and values are zero."""
    study = kv_study(subject, "wikitext2")
    shares: dict[tuple[int, int], float] = {}
    for keys, values in _all_pairs(levels):
        share = study.accuracy(_cache(keys, values, number), task, items, track).plain
        shares[keys, values] = 100 * share.value
        note = f"± {100 * share.error:.2g}"
        yield Ours(f"{subject.model}, {task}, K {keys} %", f"V {values} %", shares[keys, values], "%", note)
    yield Ours(f"{subject.model}, {task}", DROP, shares[0, 0] - shares[CHOSEN], "%")
    yield from PAPER.absent("fig14", ABSENT)


def _perplexities(study: "KvStudy", model: str, number: str, levels: str, track: Track) -> Iterator[Ours]:
    caches = {pair: _cache(*pair, number) for pair in _all_pairs(levels)}
    divergences = dict(zip(caches, study.judge(list(caches.values()), track, "caches"), strict=True))
    for (keys, values), one in divergences.items():
        row, column = f"{model}, K {keys} %", f"V {values} %"
        note = f"± {one.model.perplexity.error:.2g}"
        yield Ours(f"{row}, perplexity", column, one.model.perplexity.value, "", note)
        yield Ours(f"{row}, KL divergence", column, one.kl.value, "nat", f"± {one.kl.error:.2g}")
    dense, sparse = (divergences[pair].model.perplexity.value for pair in ((0, 0), CHOSEN))
    yield Ours(model, DENSE, dense, "")
    yield Ours(model, SPARSE, sparse, "")
    yield Ours(model, INCREASE, sparse - dense, "", "in perplexity")


def figure17(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    levels: str = LEVELS,
    checked: Checked = CHECKED,
) -> Iterator[Ours]:
    """Perplexity by how many keys and values are zero."""
    study = kv_study(subject, text, checked)
    yield from _perplexities(study, subject.model, "", levels, track)
    yield from PAPER.absent("fig17", ABSENT)


def figure18(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    number: str = "bfp8",
    levels: str = LEVELS,
    checked: Checked = CHECKED,
) -> Iterator[Ours]:
    """The same of a cache in 8 bits, or in another format."""
    study = kv_study(subject, text, checked)
    yield from _perplexities(study, f"{subject.model}, {number}", number, levels, track)
    yield from PAPER.absent("fig18", ABSENT)


AT_16K = Decoding(millions=250, depth=16384)
STOCK = "torch, keys and values joined and repeated for every token"
IN_STATE = "a cache that stays where it is, over torch's that is joined and repeated"


def figure15(
    track: Track,
    *,
    model: str = LLAMA,
    pairs: str = "1/1 30/50 50/50 70/70",
    number: str = "bf16",
    decoding: Decoding = AT_16K,
) -> Iterator[Ours]:
    """Decoding after a long context by how many keys and values are zero."""
    from .speed_study import RandomModel, cache_entrants, stock

    made = RandomModel.of(model, decoding.millions, decoding.depth + decoding.written)
    shares = dict.fromkeys([*_pairs(pairs), CHOSEN])
    caches = {f"K {keys} %, V {values} %": _cache(keys, values, number).format for keys, values in shares}
    entrants = cache_entrants(made, caches, STOCK)
    rates = made.race(track, f"{decoding.depth} tokens", entrants, decoding)
    first = next(iter(caches))
    for row in (stock(), STOCK, *caches):
        yield Ours(named(model, row), "step", 1e3 / rates.decode[row, 1], "ms", made.note)
    for row in caches:
        note = joined(f"over {stock()}", made.note)
        yield Ours(named(model, row), GAIN, rates.gain(row, stock()), "x", note)
        yield Ours(named(model, row), f"{GAIN} over {first}", rates.gain(row, first), "x", made.note)
    yield Ours(named(model, IN_STATE), GAIN, rates.gain(SPARSE, STOCK), "x", joined(SPARSE, made.note))


def _pairs(text: str) -> list[tuple[int, int]]:
    """30/50 70/70, say: % of keys and of values."""
    try:
        return [(int(keys), int(values)) for keys, values in (word.split("/") for word in text.split())]
    except ValueError as error:
        raise ValueError(f"{text!r}: write pairs of per cent of keys and values, 30/50 70/70 say") from error


DENSE, SPARSE, INCREASE, DROP = "dense", "K 30 %, V 50 %", "increase at K 30 %, V 50 %", "drop at K 30 %, V 50 %"
HERE = f"Ours is {EMBEDDED} unless told otherwise, with weights as they come (4 bits)."

CACHE = (
    PAPER.item(
        "fig14",
        "accuracy by sparsity of keys and values",
        "same study, smaller model",
        figure14,
        (
            HERE,
            FIGURE,
            "The paper's is the geometric mean of six tasks; ours is PIQA, of which the items are here.",
            "Of bfp8 every token is pruned at once; of halves (number=) blocks of 32, which few of its texts fill.",
        ),
        seconds=62,
    ),
    PAPER.item(
        "fig15",
        "decoding after 16,384 tokens by sparsity of keys and values",
        "measured here",
        figure15,
        (
            FEW_LAYERS,
            FIGURE,
            "The paper's baseline is its dense kernel, which it says is like stock torch; ours is stock torch.",
            "The context is of random keys and values. At 1 % the kernel is ours with next to nothing left out.",
        ),
        seconds=23,
    ),
    PAPER.item(
        "fig17",
        "perplexity by sparsity of keys and values",
        "same study, smaller model",
        figure17,
        (HERE, FIGURE, "A block of 32 tokens is pruned when it is full; its own tokens see all of it."),
        seconds=33,
    ),
    PAPER.item(
        "fig18",
        "the same of keys and values of 8 bits",
        "same study, smaller model",
        figure18,
        (HERE, FIGURE, "Theirs are integers of 8 bits, ours block floating point of 8 and a sign."),
        seconds=55,
    ),
)
