"""What `tilepress doctor` says first: what runs here, what is missing, and whether others use the machine."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .._extras import has_lab
from .doctor_units import unit_sentences
from .output import output_width
from .tables import wrapped

if TYPE_CHECKING:
    from ..records import Record, Value

WIDTH = 100  # where no terminal says how wide it is
INDENT = "  "


def print_verdict(records: "Sequence[Record]") -> None:
    """At most a dozen lines of `doctor`'s records."""
    first, *others = _sentences(records)
    for number, sentence in enumerate([first, *others]):
        lines = wrapped(sentence, output_width(WIDTH) - len(INDENT))
        for place, line in enumerate(lines):
            print(INDENT + line if number or place else line)


def _sentences(records: "Sequence[Record]") -> Iterator[str]:
    """The conclusion, then what it rests on."""
    active, threads = _value(records, "active_isa"), _value(records, "threads")
    reasons = _busy(records)
    state = f"the machine is {'busy' if reasons else 'idle'}"
    yield f"{active} kernels run with {_threads(threads)} on {_value(records, 'cpu_model')}; {state}"
    yield _memory(records)
    yield from unit_sentences(records)
    if reasons:
        yield f"{reasons}: figures of now are those of a shared machine"
    yield from _missing(records)
    yield f"row limits: {_value(records, 'row_limits')} (`tilepress doctor --tune` measures them here)"
    yield "`tilepress doctor --all` lists every kernel and figure"


def _busy(records: "Sequence[Record]") -> str:
    text = str(_value(records, "busy"))
    return "" if text == "no" else text


def _memory(records: "Sequence[Record]") -> str:
    rates = [one for one in records if one.metric == "read_bandwidth"]
    parts = [f"{_figure(one.value)} GB/s with {_threads(one.labels['threads'])}" for one in rates]
    load = next(one for one in records if one.metric == "load_average")
    return f"memory is read at {', '.join(parts)}; load {_figure(load.value)} on {load.labels['cpus']:g} CPUs"


def _missing(records: "Sequence[Record]") -> Iterator[str]:
    """Instruction sets that kernels exist for, an instruction set that is held back, operations, the lab extra."""
    supported = str(_value(records, "supported_isas")).split()
    registered = Counter(isa for one in records if one.metric == "registered_kernels" for isa in str(one.value).split())
    if absent := [isa for isa in registered if isa not in supported]:
        yield f"this processor lacks {', '.join(absent)}, for which there are kernels, too"
    if "TILEPRESS_ISA" in os.environ and _value(records, "active_isa") != supported[-1]:
        yield f"TILEPRESS_ISA holds {supported[-1]} back, the best that works here"
    chosen = [one for one in records if one.metric == "chosen_kernel"]
    if none := [str(one.labels["operation"]) for one in chosen if one.value == "none"]:
        yield f"{len(chosen) - len(none)} of {len(chosen)} operations have a kernel here, not {', '.join(none)}"
    if not has_lab():
        yield "the lab extra is not installed (simulators, papers, reports): pip install 'tilepress[lab]'"


def _threads(count: object) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _value(records: "Sequence[Record]", metric: str) -> "Value":
    return next((one.value for one in records if one.metric == metric), "")


def _figure(value: "Value") -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
