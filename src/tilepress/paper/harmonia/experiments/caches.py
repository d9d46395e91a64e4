"""What the cache's format and scales are worth: bits, offsets, rotation, contexts, retrieval."""

from collections.abc import Iterator

from ...item import Ours, Track
from ...notes import HERE
from ...options import CHECKED, LEARNED, SUBJECT, Checked, Learned, Subject, kv_study
from ...published import read_paper
from .settings import ACTIVATIONS, TEXTS, WIDE, cache, cache_named, figures

PAPER = read_paper("harmonia")
FORMATS = "bfp8 bfp:m4 bfp4 bfp4/offline bfp4/hybrid"  # FORMAT or FORMAT/SMOOTHING
RECOVERED = "share of the naive loss recovered"


def ablation(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    activations: str = ACTIVATIONS,
    bits: int = 4,
    checked: Checked = CHECKED,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Naive, then with asymmetric bits, then with offline scales, then with online offsets; and offsets alone. Steps
    with scales are left out where the model cannot have them."""
    study = kv_study(subject, text, checked, learned)
    wide = f"bfp:m{bits}{WIDE}"
    steps = {
        "8 bits": cache("bfp8", "none", activations),
        "naive": cache(f"bfp:m{bits}", "none", activations),
        "+ asymmetric": cache(wide, "none", activations),
        "+ offline": cache(wide, "offline", activations),
        "+ online": cache(wide, "hybrid", activations),
        "asymmetric, online alone": cache(wide, "online", activations),
    }
    if study.unfoldable:
        for name in ("+ offline", "+ online"):
            del steps[name]
            yield Ours(f"{subject.model}, {RECOVERED}", name, None, "%", study.unfoldable)
    divergences = dict(zip(steps, study.judge(list(steps.values()), track, "caches"), strict=True))
    best, worst = divergences["8 bits"].model.loss.value, divergences["naive"].model.loss.value
    for name, one in divergences.items():
        yield from figures(subject.model, one, name)
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
    divergences = study.judge([cache(format, smoothed=one) for one in counts], track, "counts")
    for one, divergence in zip(counts, divergences, strict=True):
        yield from figures(f"{subject.model}, {format}", divergence, f"{one}")


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
    from ....evaluate.kv_studies import BeforeRotation

    study = kv_study(subject, text, checked, learned)
    settings = {
        "after, no scales": cache(format),
        "after, learned scales": cache(format, "offline"),
        "before, no scales": BeforeRotation(format),
        "before, learned scales": BeforeRotation(format, study.scales_before_rotation(format, track)),
    }
    for name, one in zip(settings, study.judge(list(settings.values()), track, "caches"), strict=True):
        yield from figures(f"{subject.model}, {format}", one, name)


def context(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    caches: str = FORMATS,
    contexts: str = "512 1024",
    windows: int = 1,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Caches by the length of the context."""
    study = kv_study(subject, text, learned, windows=windows)
    chosen = [cache_named(one) for one in caches.split()]
    for tokens in map(int, contexts.split()):
        for setting, one in zip(chosen, study.judge(chosen, track, f"{tokens} tokens", tokens), strict=True):
            yield from figures(f"{subject.model}, {setting}", one, f"{tokens}")


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
        for setting in (cache("fp16"), *map(cache_named, caches.split())):
            share = study.retrieval(setting, tokens, items, track)
            note = f"± {100 * share.error:.2g}, {items} facts"
            yield Ours(f"{subject.model}, {setting}", f"{tokens}", 100 * share.value, "%", note)


CACHES = (
    PAPER.item(
        "ablation",
        "naive, + asymmetric bits, + offline scales, + online offsets",
        "same study, smaller model",
        ablation,
        (HERE, TEXTS, "The paper's ablation has two points, and those on LongBench: harmonia/table2-means."),
        seconds=70,
    ),
    PAPER.item(
        "offsets",
        "how many channels have an online offset",
        "same study, smaller model",
        offsets,
        (HERE, "The paper speaks of top-k channels and gives no k; ours is one channel in sixteen of a head."),
        seconds=34,
    ),
    PAPER.item(
        "rotation",
        "keys kept before or after the rotary embedding",
        "same study, smaller model",
        rotation,
        (
            HERE,
            TEXTS,
            "The paper does not say which. Kept before, each channel may have a scale of its own, but every key is "
            "rotated and rounded anew whenever it is read: by emulation alone, and no offset is exact there.",
        ),
        seconds=35,
    ),
    PAPER.item(
        "context",
        "caches by length of context",
        "same study, smaller model",
        context,
        (HERE, TEXTS),
        seconds=60,
    ),
    PAPER.item(
        "retrieval",
        "a fact at a random depth repeated to the letter",
        "same study, smaller model",
        retrieval,
        (
            HERE,
            TEXTS,
            "Texts and facts are made up by us, where the paper has LongBench. An answer counts where greedy decoding "
            "would write all of it, which one pass over text and answer tells.",
        ),
        seconds=40,
    ),
)
