"""Table II from its own figures."""

from collections.abc import Iterator, Sequence

from ....compression.search import Mantissas, bops_saving, relative_loss, uniform
from ...causes import explained
from ...item import Item, Ours, Published, Track
from ...published import read_paper
from .mantissas import combinations_of, falling, nearest_saving, tuple_text
from .table2 import SEARCHED, rows

PAPER = read_paper("anda")
LOSS, SAVING = "loss", "BOP saving"


WORSE = "the paper has this loss relative to the worse perplexity, all others to the better"
CAUSES = {(f"OPT-2.7B, {text}, VS-Quant", LOSS): WORSE for text in ("WikiText2", "PTB", "C4")}


@explained(CAUSES)
def arithmetic(track: Track) -> Iterator[Ours]:
    """Table II's losses from its own perplexities, and its savings from mantissas."""
    for row in rows():
        if row.has(LOSS):
            loss = relative_loss(row.printed("perplexity"), row.reference.printed("perplexity"))
            yield Ours(row.name, LOSS, 100 * loss, "%")
    for method, bits in (("FIGNA", 13), ("VS-Quant", 4)):
        yield Ours(f"{method}, any model", SAVING, bops_saving(uniform(bits), (3, 1, 4, 4)), "x")


def candidates(track: Track) -> Iterator[Ours]:
    """The saving nearest to a printed one that mantissas of 4 to 13 bits can give, and how many combinations do."""
    for row in track([row for row in rows() if row.method in SEARCHED], "savings"):
        near = combinations_of(row)
        note = f"{len(near)} combinations; {_examples(falling(near))}"
        yield Ours(row.name, SAVING, nearest_saving(row), "x", note)


def _examples(combinations: Sequence[Mantissas]) -> str:
    if not combinations:
        return "none falls from qkv to d"
    shown = ", ".join(map(tuple_text, combinations[:3]))
    return f"{len(combinations)} of them longest for qkv and shortest for d: {shown}"


def _losses() -> list[Published]:
    """Of perplexities with two digits, which leave the losses' own uncertain: so not to the last digit."""
    return [one for one in PAPER.items["table2"] if one.column == LOSS]


def _savings() -> list[Published]:
    """Those of the searched rows."""
    names = {row.name for row in rows() if row.method in SEARCHED}
    return [one for one in PAPER.items["table2"] if one.column == SAVING and one.row in names]


ARITHMETIC = (
    Item(
        "anda/table2-arithmetic",
        "Table II's losses and savings from its own figures",
        "exact",
        [*_losses(), *PAPER.items["table2-arithmetic"]],
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
        _savings(),
        candidates,
        ("Products are weighted (3, 1, 4, 4)/12 for OPT, and by their own shapes for LLaMA.",),
    ),
)
