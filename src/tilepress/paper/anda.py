"""Anda: variable-length grouped activations and the search that chooses their lengths; sections II, III and V-B.

The studies run on a model that is here; the paper's are too large and stand beside it as printed. All of them take
`weights` (a format to compress to first; "" leaves them as they come, and those of smollm2-135m come with four bits),
`device` (cuda where there is one) and how much text there shall be.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

from ..compression.search import Mantissas, Products, bops_saving, cheapest_first, relative_loss
from ..formats import TENSOR_TYPES, Anda
from ..formats.bfp import GROUPS
from .anda_published import (
    LOSS,
    MODELS,
    PERPLEXITY,
    REFERENCE,
    SAVING,
    cells,
    products_of,
    saving_of,
    table2,
)
from .item import Item, Ours, Published, Track
from .options import CHECKED, SAMPLED, SHORT, SUBJECT, Checked, Sampled, Subject

EMBEDDED = "smollm2-135m"
SWEEP = range(4, 12)
REST_BITS = 13  # of the types that a study of one leaves alone
SIGNIFICAND = 11  # bits of an FP16 number, the hidden one included
TOLERANCES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
ABSENT = "its weights are not here"
ROUNDING = 0.011  # the paper rounds 192/67 = 2.8657 to 2.86, and 192/62 = 3.0968 to 3.10 and to 3.09


def _study(subject: Subject, quantize: str, text: str, *sizes: Checked | Sampled) -> Any:
    from .activation_study import Sizes, load_study

    told = {name: value for one in sizes for name, value in asdict(one).items()}
    all_sizes = Sizes(**told, batch=subject.batch)
    return load_study(subject.model, subject.weights, quantize, text, subject.device, all_sizes)


def _uniform(bits: int, group: int = 64) -> Anda:
    return Anda((bits, bits, bits, bits), group)


def figure5(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    quantize: str = "rtn",
    checked: Checked = SHORT,
) -> Iterator[Ours]:
    """Loss by group size and mantissa."""
    study = _study(subject, quantize, text, checked)
    formats = [_uniform(bits, group) for group in GROUPS for bits in SWEEP]
    for format, loss in zip(formats, study.losses(formats, track, "formats"), strict=True):
        yield Ours(f"{subject.model}, g{format.group}", f"m{format.mantissas[0]}", loss, "%")


def figure6(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    quantize: str = "rtn",
    checked: Checked = CHECKED,
) -> Iterator[Ours]:
    """Loss by mantissa, and how many bits can go for 1 %."""
    study = _study(subject, quantize, text, checked)
    sweep = range(1, REST_BITS + 1)
    losses = dict(zip(sweep, study.losses([_uniform(bits) for bits in sweep], track, "mantissas"), strict=True))
    for bits, loss in losses.items():
        yield Ours(subject.model, f"m{bits}", loss, "%")
    enough = [bits for bits in sweep if all(losses[more] <= 1 for more in sweep if more >= bits)]
    note = f"of FP16's {SIGNIFICAND}, the hidden bit included"
    yield Ours(subject.model, REMOVED, SIGNIFICAND - min(enough) if enough else None, "bit", note)
    yield from (Ours(absent, REMOVED, None, "bit", ABSENT) for absent in MODELS)


def figure7(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    quantize: str = "rtn",
    checked: Checked = SHORT,
) -> Iterator[Ours]:
    """Loss by the mantissa of one tensor type, the others at 13 bits."""
    study = _study(subject, quantize, text, checked)
    points = [(place, bits) for place in range(len(TENSOR_TYPES)) for bits in SWEEP]
    formats = [Anda(_alone(place, bits)) for place, bits in points]
    worst: dict[str, float] = {}
    for (place, bits), loss in zip(points, study.losses(formats, track, "formats"), strict=True):
        yield Ours(f"{subject.model}, {TENSOR_TYPES[place]}", f"m{bits}", loss, "%")
        if bits == SWEEP[0]:
            worst[TENSOR_TYPES[place]] = loss
    yield Ours(subject.model, SENSITIVE, max(worst, key=worst.__getitem__), "", f"at {SWEEP[0]} bits")
    yield from (Ours(absent, SENSITIVE, None, "", ABSENT) for absent in ONE_BY_ONE)


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
    study = _study(subject, quantize, text, sampled)
    found, products = study.search(tolerance, track), study.subject.products
    for step in found.steps:
        row = f"{subject.model}, iteration {step.number:02}"
        yield Ours(row, COMBINATION, _tuple(step.mantissas), "", "taken" if step.accepted else "")
        yield Ours(row, "loss", 100 * step.loss, "%")
        yield Ours(row, "BOP saving", bops_saving(step.mantissas, products), "x")
    last = max((step.number for step in found.steps if step.accepted), default=len(found.steps))
    yield Ours(subject.model, COMBINATION, _tuple(found.mantissas), "", "" if found.within else "nothing is within")
    yield Ours(subject.model, ITERATIONS, last, "")
    yield Ours("OPT-125M", COMBINATION, None, "", ABSENT)
    yield Ours("OPT-125M", ITERATIONS, None, "", ABSENT)


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
        study = _study(subject, quantize, text, sampled)
        for tolerance in (0.001, 0.01):
            found = study.search(tolerance, track)
            row, note = f"{subject.model}, {text}, {100 * tolerance:g} %", "" if found.within else "nothing is within"
            for kind, bits in zip(TENSOR_TYPES, found.mantissas, strict=True):
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
    from .activation_study import table_schemes

    for text in texts.split():
        study = _study(subject, quantize, text, checked, sampled)
        found = [study.search(tolerance, track) for tolerance in (0.001, 0.01)]
        for cost in study.costs(table_schemes(found), track, f"{text}: formats"):
            row, format = f"{subject.model}, {text}, {cost.scheme.name}", cost.scheme.format
            note = "" if format is None else str(format)
            yield Ours(row, "perplexity", cost.perplexity.perplexity.value, "", note)
            yield Ours(row, "loss", 100 * cost.loss, "%", note)
            yield Ours(row, "BOP saving", cost.saving, "x", note)
    for cell in cells():
        for column, unit in (("perplexity", ""), ("loss", "%"), ("BOP saving", "x")):
            if column == "perplexity" or (column == "loss" and cell.of(LOSS) is not None) or saving_of(cell):
                yield Ours(cell.row, column, None, unit, ABSENT)


def figure18(
    track: Track,
    *,
    subject: Subject = SUBJECT,
    text: str = "wikitext2",
    quantize: str = "rtn",
    sampled: Sampled = SAMPLED,
) -> Iterator[Ours]:
    """BOP saving by tolerance."""
    study = _study(subject, quantize, text, sampled)
    for tolerance in TOLERANCES:
        found = study.search(tolerance, track)
        note = _tuple(found.mantissas) + ("" if found.within else ", and nothing is within")
        yield Ours(subject.model, f"{100 * tolerance:g} %", found.saving, "x", note)


def search_time(
    track: Track,
    *,
    model: str = EMBEDDED,
    text: str = "wikitext2",
    tolerance: float = 0.01,
    sampled: Sampled = SAMPLED,
    batch: int = 1,
) -> Iterator[Ours]:
    """The search and GPTQ, timed one after the other on this CPU and the same text."""
    from .activation_study import Sizes, gptq_seconds

    study = _study(Subject(model, batch=batch), "rtn", text, sampled)
    search = study.search_seconds(tolerance, track)
    (gptq,) = [gptq_seconds(model, text, Sizes(**asdict(sampled))) for _ in track(range(1), "GPTQ")]
    yield Ours(model, "search", search, "s")
    yield Ours(model, "GPTQ", gptq, "s")
    yield Ours("any model", FASTER, gptq / search, "x", f"{model} alone, both on this CPU")
    yield Ours("any model", "times as fast as Omniquant", None, "x", "Omniquant is not here")


def arithmetic(track: Track) -> Iterator[Ours]:
    """Table II's losses from its own perplexities, and its savings from mantissas."""
    for cell in cells():
        if cell.of(LOSS) is not None:
            reference = PERPLEXITY[cell.text][REFERENCE][MODELS.index(cell.model)]
            perplexity = cell.of(PERPLEXITY)
            assert perplexity is not None
            yield Ours(cell.row, "loss", 100 * relative_loss(perplexity, reference), "%")
    for method, bits in (("FIGNA", 13), ("VS-Quant", 4)):
        yield Ours(f"{method}, any model", "BOP saving", bops_saving(_uniform(bits).mantissas, (3, 1, 4, 4)), "x")


def candidates(track: Track) -> Iterator[Ours]:
    """The saving nearest to a printed one that mantissas of 4 to 13 bits can give, and how many combinations do."""
    for cell in track([cell for cell in cells() if cell.method in SAVING[cell.text]], "savings"):
        printed, products = cell.of(SAVING), products_of(cell.model)
        assert printed is not None
        savings = combinations_by_saving(products)
        near = [one for saving, alike in savings.items() if abs(saving - printed) < ROUNDING for one in alike]
        falling = [one for one in near if one[0] >= max(one[1:]) and one[3] == min(one)]
        value = min(savings, key=partial(_distance, printed))
        yield Ours(cell.row, "BOP saving", value, "x", f"{len(near)} combinations; {_examples(falling)}")


@lru_cache(maxsize=8)
def combinations_by_saving(products: Products) -> dict[float, list[Mantissas]]:
    """Saving → combinations of 4 to 13 bits that give it."""
    found: dict[float, list[Mantissas]] = {}
    for mantissas in cheapest_first(products, 4, 13):
        found.setdefault(bops_saving(mantissas, products), []).append(mantissas)
    return found


def _distance(one: float, other: float) -> float:
    return abs(one - other)


def _examples(found: Sequence[Mantissas]) -> str:
    """Those that need most bits for qkv and fewest for d, as the paper says they mostly do."""
    shown = ", ".join(_tuple(one) for one in found[:3])
    return f"{len(found)} of them longest for qkv and shortest for d: {shown}" if found else "none falls from qkv to d"


def _alone(place: int, bits: int) -> Mantissas:
    qkv, o, u, d = (bits if index == place else REST_BITS for index in range(4))
    return qkv, o, u, d


def _tuple(mantissas: Mantissas) -> str:
    return f"[{', '.join(map(str, mantissas))}]"


REMOVED = "mantissa bits removed within 1 %"
SENSITIVE = "most sensitive type"
COMBINATION = "combination"
FASTER = "times as fast as GPTQ"
ITERATIONS = "iterations"
ONE_BY_ONE = ("OPT-6.7B", "LLaMA-7B", "LLaMA2-7B")
LESS_SENSITIVE = ("OPT-2.7B", "OPT-6.7B", "OPT-13B", "OPT-30B")

HERE = f"Ours is {EMBEDDED} unless told otherwise, with weights as they come (4 bits); the paper's models are larger."
PTB = "Of a text without a part for training the first half is searched on and the second is checked on."

# The search is timed before figure 9, which then has nothing to compute again.
ITEMS: tuple[Item, ...] = (
    Item(
        "anda/fig5",
        "sensitivity to group size and mantissa",
        "same study, smaller model",
        (),
        figure5,
        (HERE, "The figure's values are not in its text, which settles on groups of 64."),
        seconds=37,
    ),
    Item(
        "anda/fig6",
        "sensitivity to the mantissa",
        "same study, smaller model",
        [Published(model, REMOVED, 5 if model in LESS_SENSITIVE else 4, "bit", "Section II-C") for model in MODELS],
        figure6,
        (HERE, "The text does not say what bits are removed from: 11 with FP16's hidden one, 10 without."),
        seconds=23,
    ),
    Item(
        "anda/fig7",
        "sensitivity of one tensor type at a time",
        "same study, smaller model",
        [Published(model, SENSITIVE, "qkv", "", "Section II-C") for model in ONE_BY_ONE],
        figure7,
        (HERE,),
        seconds=30,
    ),
    Item(
        "anda/search-time",
        "the search beside weight-only quantisation",
        "measured here",
        [
            Published("any model", FASTER, 10, "x", "Section III-D", within=0.5),
            Published("any model", "times as fast as Omniquant", 2, "x", "Section III-D", within=0.5),
        ],
        search_time,
        ("GPTQ is ours, of int4:g128, a block at a time; the paper's comparison is of its authors' codes on a GPU.",),
        seconds=79,
    ),
    Item(
        "anda/fig9",
        "the search, step by step",
        "same study, smaller model",
        [
            Published("OPT-125M", COMBINATION, "[7, 7, 6, 5]", "", "Section III-D"),
            Published("OPT-125M", ITERATIONS, 10, "", "Section III-D"),
        ],
        figure9,
        (HERE, "`tilepress search` does the same with a plot, --brute-force and --time-gptq."),
    ),
    Item(
        "anda/fig14",
        "combinations for 0.1 % and 1 %",
        "same study, smaller model",
        (),
        figure14,
        (
            HERE,
            PTB,
            "The figure's combinations are not in the text; those that fit Table II are anda/fig14-candidates.",
        ),
        seconds=47,
    ),
    Item(
        "anda/table2",
        "perplexity, loss and BOP saving of activation formats",
        "same study, smaller model",
        list(table2()),
        table_2,
        (
            HERE,
            PTB,
            "FIGNA is 13 bits and VS-Quant 4 bits of block floating point in groups of 64, without retraining, as the "
            "paper has them; Table I gives FIGNA 14 bits. Harmonia's BFP8, groups of 32, is ours to add.",
        ),
        seconds=21,
    ),
    Item(
        "anda/fig18",
        "BOP saving by tolerance",
        "same study, smaller model",
        (),
        figure18,
        (HERE, "The figure's vertical axes, speed and energy, belong to the simulator."),
        seconds=18,
    ),
    Item(
        "anda/table2-arithmetic",
        "Table II's losses and savings from its own figures",
        "exact",
        [
            *(one for one in table2() if one.column == "loss"),
            Published("FIGNA, any model", "BOP saving", 1.23, "x", "Table II", within=0.005),
            Published("VS-Quant, any model", "BOP saving", 4.0, "x", "Table II", within=0.005),
        ],
        arithmetic,
        (
            "Losses of OPT-2.7B under VS-Quant are relative to the worse perplexity, all others to the better.",
            "In Table II of OPT-13B on PTB for 0.1 % the text has -1.84 % where a saving of 1.84 must stand.",
        ),
    ),
    Item(
        "anda/fig14-candidates",
        "mantissas that give Table II's savings",
        "exact",
        [
            Published(cell.row, "BOP saving", saving, "x", "Table II", within=ROUNDING / saving)
            for cell in cells()
            if cell.method in SAVING[cell.text] and (saving := saving_of(cell))
        ],
        candidates,
        ("Products are weighted (3, 1, 4, 4)/12 for OPT, and by their own shapes for LLaMA.",),
    ),
)
