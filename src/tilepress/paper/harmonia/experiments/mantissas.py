"""Mantissas of all activations and of the cache: figures 4, 5 and 8."""

from collections.abc import Iterator
from dataclasses import dataclass

from ....formats import BFP
from ....formats.bfp import GROUPS
from ...item import Ours, Track
from ...notes import ABSENT, HERE
from ...options import CHECKED, SHORT, SUBJECT, Checked, Subject, kv_study
from ...published import read_paper
from .settings import ACTIVATIONS, FIGURE, WIDE, cache, figures

PAPER = read_paper("harmonia")
GAIN = "gain of relative accuracy"


def figure4(
    track: Track, *, subject: Subject = SUBJECT, text: str = "wikitext2", checked: Checked = SHORT
) -> Iterator[Ours]:
    """Group size by mantissa, for the activations of linear layers and of attention alike."""
    from ....evaluate.kv_studies import Everywhere

    study = kv_study(subject, text, checked)
    formats = [BFP(group, bits) for group in GROUPS for bits in range(10, 3, -1)]
    divergences = study.judge([Everywhere(format) for format in formats], track, "formats")
    for format, one in zip(formats, divergences, strict=True):
        yield from figures(f"{subject.model}, g{format.group}", one, f"m{format.mantissa}")
    yield from PAPER.absent("fig4", ABSENT)


@dataclass(frozen=True)
class Rounded(Subject):
    """A model and a text; `activations`: the format of all but those in the cache."""

    text: str = "wikitext2"
    activations: str = ACTIVATIONS


ROUNDED = Rounded()


def figure5(track: Track, *, subject: Rounded = ROUNDED, checked: Checked = CHECKED) -> Iterator[Ours]:
    """The mantissa of the cache, all tokens alike."""
    study = kv_study(subject, subject.text, checked)
    bits = range(8, 0, -1)
    divergences = study.judge(
        [cache(f"bfp:m{one}", activations=subject.activations) for one in bits], track, "mantissas"
    )
    for one, divergence in zip(bits, divergences, strict=True):
        yield from figures(subject.model, divergence, f"m{one}")
    yield from PAPER.absent("fig5", ABSENT)


def figure8(track: Track, *, subject: Rounded = ROUNDED, checked: Checked = CHECKED) -> Iterator[Ours]:
    """Without and with 8 bits for the first 32 and the last 64 tokens."""
    study = kv_study(subject, subject.text, checked)
    bits = (6, 5, 4, 3, 2)
    caches = [cache(f"bfp:m{one}{wide}", activations=subject.activations) for one in bits for wide in ("", WIDE)]
    divergences = dict(zip(caches, study.judge(caches, track, "caches"), strict=True))
    for one in bits:
        without, with_ = (
            divergences[cache(f"bfp:m{one}{wide}", activations=subject.activations)] for wide in ("", WIDE)
        )
        yield from figures(f"{subject.model}, without", without, f"m{one}")
        yield from figures(f"{subject.model}, with", with_, f"m{one}")
        gain = 100 * (without.ratio.value / with_.ratio.value - 1)
        yield Ours(f"{subject.model}, {GAIN}", f"m{one}", gain, "%")
    yield from PAPER.absent("fig8", ABSENT)


MANTISSAS = (
    PAPER.item(
        "fig4",
        "relative accuracy by group size and mantissa of all activations",
        "same study, smaller model",
        figure4,
        (HERE, FIGURE, "Heads of 64 channels have groups of 64 at most, in keys and queries."),
        seconds=42,
    ),
    PAPER.item(
        "fig5",
        "relative accuracy by mantissa of the KV cache",
        "same study, smaller model",
        figure5,
        (
            HERE,
            FIGURE,
            "All groups are of 32 values, and other activations have 8 bits, as in the paper.",
        ),
        seconds=31,
    ),
    PAPER.item(
        "fig8",
        "more bits for the first and the last tokens",
        "same study, smaller model",
        figure8,
        (HERE, FIGURE),
        seconds=38,
    ),
)
