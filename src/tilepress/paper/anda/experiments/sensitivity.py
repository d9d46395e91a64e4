"""How much shorter mantissas lose: figures 5 to 7.

The studies run on a model that is here; the paper's are too large and stand beside it as printed. All of them take
`weights` (a format to compress to first; "" leaves them as they come, and those of smollm2-135m come with four bits),
`device` (cuda where there is one) and how much text there shall be.
"""

from collections.abc import Iterator

from ....compression.search import Mantissas, uniform
from ....formats import TENSOR_TYPES, Anda
from ....formats.bfp import GROUPS
from ...item import Ours, Track
from ...notes import ABSENT, HERE
from ...options import CHECKED, SHORT, STUDIED, Checked, Studied, activation_study
from ...published import read_paper

PAPER = read_paper("anda")
SWEEP = range(4, 12)
REST_BITS = 13  # of the types that a study of one leaves alone
SIGNIFICAND = 11  # bits of an FP16 number, the hidden one included
REMOVED = "mantissa bits removed within 1 %"
SENSITIVE = "most sensitive type"


def figure5(track: Track, *, studied: Studied = STUDIED, checked: Checked = SHORT) -> Iterator[Ours]:
    """Loss by group size and mantissa."""
    study = activation_study(studied, studied.quantize, studied.text, checked)
    formats = [Anda(uniform(bits), group) for group in GROUPS for bits in SWEEP]
    for format, loss in zip(formats, study.losses(formats, track, "formats"), strict=True):
        yield Ours(f"{studied.model}, g{format.group}", f"m{format.mantissas[0]}", loss, "%")


def figure6(track: Track, *, studied: Studied = STUDIED, checked: Checked = CHECKED) -> Iterator[Ours]:
    """Loss by mantissa, and how many bits can go for 1 %."""
    study = activation_study(studied, studied.quantize, studied.text, checked)
    sweep = range(1, REST_BITS + 1)
    losses = dict(zip(sweep, study.losses([Anda(uniform(bits)) for bits in sweep], track, "mantissas"), strict=True))
    for bits, loss in losses.items():
        yield Ours(studied.model, f"m{bits}", loss, "%")
    enough = [bits for bits in sweep if all(losses[more] <= 1 for more in sweep if more >= bits)]
    note = f"of FP16's {SIGNIFICAND}, the hidden bit included"
    yield Ours(studied.model, REMOVED, SIGNIFICAND - min(enough) if enough else None, "bit", note)
    yield from PAPER.absent("fig6", ABSENT)


def figure7(track: Track, *, studied: Studied = STUDIED, checked: Checked = SHORT) -> Iterator[Ours]:
    """Loss by the mantissa of one tensor type, the others at 13 bits."""
    study = activation_study(studied, studied.quantize, studied.text, checked)
    points = [(place, bits) for place in range(len(TENSOR_TYPES)) for bits in SWEEP]
    formats = [Anda(_alone(place, bits)) for place, bits in points]
    worst: dict[str, float] = {}
    for (place, bits), loss in zip(points, study.losses(formats, track, "formats"), strict=True):
        yield Ours(f"{studied.model}, {TENSOR_TYPES[place]}", f"m{bits}", loss, "%")
        if bits == SWEEP[0]:
            worst[TENSOR_TYPES[place]] = loss
    yield Ours(studied.model, SENSITIVE, max(worst, key=worst.__getitem__), "", f"at {SWEEP[0]} bits")
    yield from PAPER.absent("fig7", ABSENT)


def _alone(place: int, bits: int) -> Mantissas:
    qkv, o, u, d = (bits if index == place else REST_BITS for index in range(4))
    return qkv, o, u, d


SENSITIVITY = (
    PAPER.item(
        "fig5",
        "sensitivity to group size and mantissa",
        "same study, smaller model",
        figure5,
        (HERE, "The figure's values are not in its text, which settles on groups of 64."),
        seconds=37,
    ),
    PAPER.item(
        "fig6",
        "sensitivity to the mantissa",
        "same study, smaller model",
        figure6,
        (HERE, "The text does not say what bits are removed from: 11 with FP16's hidden one, 10 without."),
        seconds=23,
    ),
    PAPER.item(
        "fig7",
        "sensitivity of one tensor type at a time",
        "same study, smaller model",
        figure7,
        (HERE,),
        seconds=30,
    ),
)
