"""Harmonia: block floating point in every layer, and a KV cache of 4-bit mantissas; sections II, III and V-B.

The studies run on a model that is here; the paper's are too large and stand beside it as printed. Relative accuracy is
the full-precision model's perplexity over that of the setting, in per cent. All studies take `weights` (a format to
compress to first; "" leaves them as they come, and those of smollm2-135m come with four bits), `device` (cuda where
there is one) and how much text there shall be.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..formats import BFP
from ..formats.bfp import GROUPS
from ..formats.kv import PRESETS
from .harmonia_published import TABLE2, TABLE2_METHODS, table1
from .item import Item, Ours, Published, Track
from .options import CHECKED, LEARNED, SHORT, SUBJECT, Checked, Learned, Subject, kv_study

if TYPE_CHECKING:
    from ..evaluate import Divergence

EMBEDDED = SUBJECT.model
QUANTIZED = Subject(weights="int4:g128")
ABSENT = "its weights are not here"
OTHERS = "bfp:g32:m8"  # activations other than the cache's, as the paper settles on
WIDE = ":hi8:initial32:local64"
CACHES = "bfp8 bfp:m4 bfp4 bfp4/offline bfp4/hybrid"  # FORMAT or FORMAT/SMOOTHING
ACCURACY, PERPLEXITY, KL, TOP = "relative accuracy", "perplexity", "KL divergence", "same most likely token"


def _cache(format: str, smoothing: str = "none", activations: str = "fp", smoothed: int | None = None) -> Any:
    from ..evaluate.kv_studies import Cache

    return Cache(format, smoothing, activations, smoothed)


def _figures(row: str, found: "Divergence", column: str) -> Iterator[Ours]:
    """A setting's figures, each in a row of its own."""
    values = (
        (ACCURACY, 100 / found.ratio.value, "%", f"± {100 * found.ratio.error / found.ratio.value**2:.2g}"),
        (PERPLEXITY, found.model.perplexity.value, "", f"± {found.model.perplexity.error:.2g}"),
        (KL, found.kl.value, "nat", f"± {found.kl.error:.2g}"),
        (TOP, 100 * found.same_top.value, "%", ""),
    )
    for name, value, unit, note in values:
        yield Ours(f"{row}, {name}", column, value, unit, note)


def figure4(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    checked: Checked = SHORT,
) -> Iterator[Ours]:
    """Group size by mantissa, for the activations of linear layers and of attention alike."""
    from ..evaluate.kv_studies import Everywhere

    study = kv_study(subject, text, checked)
    formats = [BFP(group, bits) for group in GROUPS for bits in range(10, 3, -1)]
    found = study.judge([Everywhere(format) for format in formats], track, "formats")
    for format, one in zip(formats, found, strict=True):
        yield from _figures(f"{subject.model}, g{format.group}", one, f"m{format.mantissa}")
    yield Ours("most models, g32", "m8", None, "%", ABSENT)


def figure5(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    activations: str = OTHERS,
    checked: Checked = CHECKED,
) -> Iterator[Ours]:
    """The mantissa of the cache, all tokens alike."""
    study = kv_study(subject, text, checked)
    bits = range(8, 0, -1)
    found = study.judge([_cache(f"bfp:m{one}", activations=activations) for one in bits], track, "mantissas")
    for one, divergence in zip(bits, found, strict=True):
        yield from _figures(subject.model, divergence, f"m{one}")
    yield Ours("most models", "m4", None, "%", ABSENT)
    yield Ours("some models", "m4", None, "%", ABSENT)


def figure8(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    activations: str = OTHERS,
    checked: Checked = CHECKED,
) -> Iterator[Ours]:
    """Without and with 8 bits for the first 32 and the last 64 tokens."""
    study = kv_study(subject, text, checked)
    bits = (6, 5, 4, 3, 2)
    caches = [_cache(f"bfp:m{one}{wide}", activations=activations) for one in bits for wide in ("", WIDE)]
    found = dict(zip(caches, study.judge(caches, track, "caches"), strict=True))
    for one in bits:
        without, with_ = (found[_cache(f"bfp:m{one}{wide}", activations=activations)] for wide in ("", WIDE))
        yield from _figures(f"{subject.model}, without", without, f"m{one}")
        yield from _figures(f"{subject.model}, with", with_, f"m{one}")
        gain = 100 * (without.ratio.value / with_.ratio.value - 1)
        yield Ours(f"{subject.model}, {GAIN}", f"m{one}", gain, "%")
    yield Ours(f"three models, {GAIN}", "m4", None, "%", ABSENT)


def ablation(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    activations: str = OTHERS,
    bits: int = 4,
    checked: Checked = CHECKED,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Naive, then with asymmetric bits, then with offline scales, then with online offsets; and offsets alone."""
    study = kv_study(subject, text, checked, learned)
    wide = f"bfp:m{bits}{WIDE}"
    steps = {
        "8 bits": _cache("bfp8", "none", activations),
        "naive": _cache(f"bfp:m{bits}", "none", activations),
        "+ asymmetric": _cache(wide, "none", activations),
        "+ offline": _cache(wide, "offline", activations),
        "+ online": _cache(wide, "hybrid", activations),
        "asymmetric, online alone": _cache(wide, "online", activations),
    }
    found = dict(zip(steps, study.judge(list(steps.values()), track, "caches"), strict=True))
    best, worst = found["8 bits"].model.loss.value, found["naive"].model.loss.value
    for name, one in found.items():
        yield from _figures(subject.model, one, name)
        recovered = 100 * (worst - one.model.loss.value) / (worst - best)
        yield Ours(
            f"{subject.model}, {RECOVERED}", name, recovered, "%", "of the loss in nats between naive and 8 bits"
        )


def offsets(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    format: str = "bfp4",
    checked: Checked = CHECKED,
) -> Iterator[Ours]:
    """How many channels of a head have an offset; the paper does not say."""
    study = kv_study(subject, text, checked)
    counts = (0, 1, 2, 3, 4, 8, 16)
    found = study.judge([_cache(format, smoothed=one) for one in counts], track, "counts")
    for one, divergence in zip(counts, found, strict=True):
        yield from _figures(f"{subject.model}, {format}", divergence, f"{one}")


def rotation(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    format: str = "bfp4",
    checked: Checked = CHECKED,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Keys kept after the rotary embedding or before it, without scales and with learned ones."""
    from ..evaluate.kv_studies import BeforeRotation

    study = kv_study(subject, text, checked, learned)
    settings = {
        "after, no scales": _cache(format),
        "after, learned scales": _cache(format, "offline"),
        "before, no scales": BeforeRotation(format),
        "before, learned scales": BeforeRotation(format, study.scales_before_rotation(format, track)),
    }
    for name, one in zip(settings, study.judge(list(settings.values()), track, "caches"), strict=True):
        yield from _figures(f"{subject.model}, {format}", one, name)


def context(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    caches: str = CACHES,
    contexts: str = "512 1024",
    windows: int = 1,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Caches by the length of the context."""
    study = kv_study(subject, text, learned, windows=windows)
    chosen = [_named(one) for one in caches.split()]
    for tokens in map(int, contexts.split()):
        for cache, one in zip(chosen, study.judge(chosen, track, f"{tokens} tokens", tokens), strict=True):
            yield from _figures(f"{subject.model}, {cache}", one, f"{tokens}")


def retrieval(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    caches: str = "bfp8 bfp:m4 bfp4 bfp4/hybrid",
    contexts: str = "256",
    items: int = 5,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """A fact at a random depth of a text, and whether the model repeats it to the letter; `text` is for scales."""
    study = kv_study(subject, text, learned)
    for tokens in map(int, contexts.split()):
        for cache in (_cache("fp16"), *map(_named, caches.split())):
            found = study.retrieval(cache, tokens, items, track)
            note = f"± {100 * found.error:.2g}, {items} facts"
            yield Ours(f"{subject.model}, {cache}", f"{tokens}", 100 * found.value, "%", note)


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
        [_cache("fp16")], track, "full precision"
    )
    yield Ours("Full", column, full.model.perplexity.value, "", "weights as they come")
    study = kv_study(subject, text, checked, learned)
    for name, one in zip(METHODS, study.judge(_methods(), track, "methods"), strict=True):
        yield Ours(name, column, one.model.perplexity.value, "", f"weights {subject.weights}, rounded to nearest")
    for absent in table1():
        yield Ours(absent.row, absent.column, None, "", ABSENT)


def table_2(track: Track) -> Iterator[Ours]:
    """Means over models, from the averages that are printed."""
    rows = list(TABLE2.values())
    for name, (one, other) in CLAIMS.items():
        first, second = TABLE2_METHODS.index(one), TABLE2_METHODS.index(other)
        yield Ours("mean of five models", name, sum(row[first] - row[second] for row in rows) / len(rows), "%")


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


def _named(text: str) -> Any:
    """A cache as options write it: bfp4/hybrid."""
    format, _, smoothing = text.partition("/")
    return _cache(format, smoothing or "none")


def _methods() -> list[Any]:
    """What METHODS name; the last is the recipe `harmonia`."""
    from ..models.recipe import read_recipe

    cache = read_recipe("harmonia").kv_cache
    linear = ["fp", "bfp:g64:m4", "bfp:g64:m6", "bfp:g64:m8"]
    return [
        *(_cache("fp16", "none", one) for one in linear),
        _cache("bfp8", "none", OTHERS),
        _cache(cache.format, cache.smoothing, OTHERS),
    ]


GAIN = "gain of relative accuracy"
RECOVERED = "share of the naive loss recovered"
REDUCTION = "reduction"
METHODS = ("Omniquant", "Anda-m4", "Anda-m6", "Anda-m8", "Harmonia, KV BFP8", "Harmonia, KV BFP4")
CLAIMS = {
    "below Omniquant": ("Omniquant", "Harmonia"),
    "above KIVI-q": ("Harmonia", "KIVI-q"),
    "above naive": ("Harmonia", "Harmonia-Naïve"),
}

HERE = f"Ours is {EMBEDDED} unless told otherwise, with weights as they come (4 bits); the paper's models are larger."
FIGURE = "The figure's values are not in its text, but for those that stand here."
TEXTS = "Scales are learned on the text's part for training, or its first half, and checked on another."

ITEMS: tuple[Item, ...] = (
    Item(
        "harmonia/fig4",
        "relative accuracy by group size and mantissa of all activations",
        "same study, smaller model",
        [Published("most models, g32", "m8", 98.5, "%", "Section II-C", within=0.5)],
        figure4,
        (HERE, FIGURE, "Heads of 64 channels have groups of 64 at most, in keys and queries."),
        seconds=42,
    ),
    Item(
        "harmonia/fig5",
        "relative accuracy by mantissa of the KV cache",
        "same study, smaller model",
        [
            Published("most models", "m4", 90, "%", "Section II-C", relation="<"),
            Published("some models", "m4", 70, "%", "Section II-C", within=5),
        ],
        figure5,
        (
            HERE,
            FIGURE,
            "All groups are of 32 values, and other activations have 8 bits, as in the paper.",
        ),
        seconds=31,
    ),
    Item(
        "harmonia/fig8",
        "more bits for the first and the last tokens",
        "same study, smaller model",
        [Published(f"three models, {GAIN}", "m4", 9.54, "%", "Section III-B", within=1)],
        figure8,
        (HERE, FIGURE),
        seconds=38,
    ),
    Item(
        "harmonia/ablation",
        "naive, + asymmetric bits, + offline scales, + online offsets",
        "same study, smaller model",
        (),
        ablation,
        (HERE, TEXTS, "The paper's ablation has two points, and those on LongBench: harmonia/table2-means."),
        seconds=70,
    ),
    Item(
        "harmonia/offsets",
        "how many channels have an online offset",
        "same study, smaller model",
        (),
        offsets,
        (HERE, "The paper speaks of top-k channels and gives no k; ours is one channel in sixteen of a head."),
        seconds=34,
    ),
    Item(
        "harmonia/rotation",
        "keys kept before or after the rotary embedding",
        "same study, smaller model",
        (),
        rotation,
        (
            HERE,
            TEXTS,
            "The paper does not say which. Kept before, each channel may have a scale of its own, but every key is "
            "rotated and rounded anew whenever it is read: by emulation alone, and no offset is exact there.",
        ),
        seconds=35,
    ),
    Item(
        "harmonia/context",
        "caches by length of context",
        "same study, smaller model",
        (),
        context,
        (HERE, TEXTS),
        seconds=60,
    ),
    Item(
        "harmonia/retrieval",
        "a fact at a random depth repeated to the letter",
        "same study, smaller model",
        (),
        retrieval,
        (
            HERE,
            TEXTS,
            "Texts and facts are made up by us, where the paper has LongBench. An answer counts where greedy decoding "
            "would write all of it, which one pass over text and answer tells.",
        ),
        seconds=40,
    ),
    Item(
        "harmonia/table1",
        "perplexity of activation and cache formats",
        "same study, smaller model",
        table1(),
        table_1,
        (
            "Ours is the same model in each row, weights rounded to nearest in groups of 128 where the paper has "
            "Omniquant's; Tender, M-ANT and FIGNA are not here.",
            TEXTS,
        ),
        seconds=50,
    ),
    Item(
        "harmonia/table2-means",
        "what the averages of Table II say of Harmonia",
        "exact",
        [
            Published("mean of five models", "below Omniquant", 0.3, "%", "Section V-B", within=0.05),
            Published("mean of five models", "above KIVI-q", 3.9, "%", "Section V-B", within=0.05),
            Published("mean of five models", "above naive", 5.8, "%", "Section V-B", within=0.05),
        ],
        table_2,
        ("Of the printed averages of nine LongBench tasks; in points.",),
    ),
    Item(
        "harmonia/storage",
        "what the cache takes",
        "exact",
        [
            Published("KV BFP8", REDUCTION, 43.75, "%", "Table I", within=0.005),
            Published("KV BFP4", REDUCTION, 68.75, "%", "Table I", within=0.005),
            Published("KV BFP4, 4K tokens", "tokens of 4 bits", 97.6, "%", "Section III-B", within=0.06),
            Published("KV BFP4, 4K tokens", "tokens of 8 bits", 2.4, "%", "Section III-B", within=0.06),
            Published("KV BFP4, 4K tokens", "times smaller than FP16", 3.05, "x", "Section III-B", within=0.005),
        ],
        storage,
        ("The reductions count signs and mantissas alone; 3.05 counts the shared exponents, too.",),
    ),
)
