"""What the algorithm rests on: where heads attend (figure 7), and outliers of keys (figures 9 and 10)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....formats import BFP
from ...item import Ours, Track
from ...notes import HERE
from ...options import LEARNED, SUBJECT, Checked, Learned, Subject, kv_study
from ...published import read_paper
from .settings import TEXTS, cache

if TYPE_CHECKING:
    from torch import Tensor

    from ...studies.kv_cache import KvStudy

PAPER = read_paper("harmonia")
LOOKED_AT = Checked(windows=4)
WORDS = "The text gives no values: the paper's cells are the direction of what it says in words."
NARROW = BFP(32, 4)
OVER_BETWEEN, OVER_EVEN = "attention over that of tokens between", "attention over an even share"
HEADS = "heads with more than half of it there"
OUTLIER, BETWEEN, ZEROS = "largest channel over median", "variance between channels", "become zero"
MEDIAN = "median channel"
STEPS = ("none", "offline", "hybrid")


def figure7(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    sentences: int = 128,
    length: int = 20,
    few: int = 4,
) -> Iterator[Ours]:
    """Attention to the first and the last few tokens of short texts, in all heads and in those that prefer them."""
    from ....models.calibration import token_windows
    from ...studies.distributions import attended, mean_attention

    study = kv_study(subject, text)
    (attention,) = [
        mean_attention(study.subject.model, token_windows(study.tokens, sentences, length, 0, study.begin))
        for _ in track([0], "attention")
    ]
    shares = attended(attention, few)
    between = float(shares.between.mean())
    for row, share in (("initial tokens", shares.initial), ("local tokens", shares.local)):
        total = float(share.mean())
        yield Ours(row, OVER_BETWEEN, total / few / between, "x", "a token; mean of heads")
        yield Ours(row, OVER_EVEN, total / shares.even, "x", f"{100 * shares.even:.3g} % for {few} tokens")
        yield Ours(row, HEADS, 100 * float((share > 0.5).double().mean()), "%", f"of {share.numel()}")


def figure9(
    track: Track, *, subject: Subject = SUBJECT, text: str = "wikitext2", checked: Checked = LOOKED_AT
) -> Iterator[Ours]:
    """Channels of keys and of values: outliers, how alike a channel is in all tokens, and what 4 bits make of them."""
    from ...studies.distributions import (
        channel_magnitudes,
        geometric_mean,
        keys_and_values,
        outliers,
        share_of_zeros,
        variance_between_channels,
    )

    study = kv_study(subject, text, checked)
    (both,) = [keys_and_values(study.subject.model, _windows(study)) for _ in track([0], "keys and values")]
    ratios = []
    for name, one, grouped in (("keys", both[0], both[0]), ("values", both[1], both[1].mT)):
        ratios.append(geometric_mean(outliers(channel_magnitudes(one))))
        yield Ours(f"{subject.model}, {name}", OUTLIER, ratios[-1], "x", "geometric mean of heads")
        share = 100 * float(variance_between_channels(one).mean())
        yield Ours(f"{subject.model}, {name}", BETWEEN, share, "%", "of magnitudes; mean of heads")
        yield Ours(f"{subject.model}, {name}", ZEROS, 100 * share_of_zeros(grouped, NARROW), "%", f"in {NARROW}")
    yield Ours("keys over values", OUTLIER, ratios[0] / ratios[1], "x")


def figure10(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    format: str = "bfp4",
    checked: Checked = LOOKED_AT,
    learned: Learned = LEARNED,
) -> Iterator[Ours]:
    """Channels of keys without smoothing, with learned scales, and with scales and offsets."""
    from ...studies.distributions import geometric_mean, outliers, share_of_zeros

    study = kv_study(subject, text, checked, learned)
    ratios, medians = {}, {}
    for step in STEPS:
        keys, magnitudes = _smoothed_keys(study, format, step, track)
        ratios[step] = geometric_mean(outliers(magnitudes))
        medians[step] = geometric_mean(magnitudes.median(-1).values)
        yield Ours(f"{subject.model}, {step}", OUTLIER, ratios[step], "x", "geometric mean of heads")
        yield Ours(f"{subject.model}, {step}", ZEROS, 100 * share_of_zeros(keys, NARROW), "%", f"in {NARROW}")
    yield Ours("offline over none", OUTLIER, ratios["offline"] / ratios["none"], "x")
    yield Ours("offline over none", MEDIAN, medians["offline"] / medians["none"], "x", "scales of a head average 1")
    yield Ours("hybrid over offline", OUTLIER, ratios["hybrid"] / ratios["offline"], "x")


def _smoothed_keys(study: "KvStudy", format: str, smoothing: str, track: Track) -> "tuple[Tensor, Tensor]":
    """Keys as a cache with that smoothing keeps them, and magnitudes of their channels, as if the geometric mean of a
    head's scales were 1: a factor that is common to all channels moves only the exponents."""
    from ....formats.kv import of_cache, parse_kv, smoothed_channels
    from ...studies.distributions import channel_magnitudes, keys_and_values, without_offsets

    plain_model, windows = study.subject.model, _windows(study)
    model = plain_model if smoothing == "none" else study.smoothed(cache(format, smoothing), track)
    before, _ = keys_and_values(plain_model, windows)
    scaled, _ = keys_and_values(model, windows)
    scales = channel_magnitudes(scaled) / channel_magnitudes(before)
    channels = smoothed_channels(parse_kv(format), of_cache(smoothing), scaled.shape[-1])
    keys = without_offsets(scaled, channels)
    return keys, channel_magnitudes(keys) / scales.log().mean(-1, keepdim=True).exp()


def _windows(study: "KvStudy") -> "Tensor":
    from ....models.calibration import token_windows

    return token_windows(study.tokens, study.sizes.windows, study.sizes.tokens, 0, study.begin)


DISTRIBUTIONS = (
    PAPER.item(
        "fig7",
        "attention to the first and to the latest tokens",
        "same study, smaller model",
        figure7,
        (
            HERE,
            WORDS,
            "128 sentences of 20 tokens, as in the paper, but cut anywhere from the text; its few tokens are 4 here. "
            "Queries of the second half count.",
            "The cells compare with tokens between, which was settled after both were seen: the first tokens take more "
            "than half of all attention, and what is left for the last ones is less than an even share.",
        ),
        seconds=25,
    ),
    PAPER.item(
        "fig9",
        "magnitudes of keys and values by channel",
        "same study, smaller model",
        figure9,
        (HERE, WORDS, "Keys are those of the cache, after the rotary embedding; the paper does not say."),
        seconds=8,
    ),
    PAPER.item(
        "fig10",
        "outliers of keys without smoothing, with scales, and with scales and offsets",
        "same study, smaller model",
        figure10,
        (
            HERE,
            WORDS,
            TEXTS,
            "The paper's wider overall range of values has no cell: it depends on a common factor of a head's scales, "
            "which block floating point does not see. Ours is shown with scales whose geometric mean is 1.",
        ),
        seconds=40,
    ),
)
