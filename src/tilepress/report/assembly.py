"""Records to sections, in the order in which a reader meets them. A section is there where records hold its figures."""

from collections.abc import Mapping, Sequence

from ..records import Record, Reproduction
from .blocks import Section, Sources, Table
from .catalogue import FAMILIES
from .comparison import comparison_section
from .families import read, shortened
from .quality import quality_section
from .roofs import surface_section
from .searches import search_section
from .simulations import array_blocks, simulator_section
from .speed import speed_section
from .studies import SECTIONS, study_sections
from .summary import summary_section
from .sweeps import is_of_sweep, sweep_section
from .synthesis import synthesis_section


def sections(records: Sequence[Record]) -> list[Section]:
    compared = [one for one in records if isinstance(one, Reproduction)]
    studies = study_sections(compared, _titles() if compared else {})
    candidates = [
        summary_section(records),
        sweep_section(records),
        quality_section(records),
        speed_section(records),
        surface_section(records),
        search_section(records),
        studies.get("precision"),
        studies.get("kv"),
        simulator_section(records),
        synthesis_section(records),
        _energy(records, studies.get("energy")),
        *(section for key, section in studies.items() if key.startswith("studies-")),
        comparison_section(compared),
        _rest(records),
    ]
    return [section for section in candidates if section is not None]


def _titles() -> Mapping[str, str]:
    from ..paper import items

    return {item.name: item.title for item in items()}


def _energy(records: Sequence[Record], studied: Section | None) -> Section | None:
    """What arrays recorded, before the papers' figures of them."""
    blocks = [*array_blocks(records), *(studied.blocks if studied else [])]
    title, about, _ = SECTIONS["energy"]
    return Section("energy", title, about, blocks) if blocks else None


def _rest(records: Sequence[Record]) -> Section | None:
    """What no other section shows: nothing that was given is left out."""
    shown = {id(figure.record) for family in FAMILIES for figure in read(family, records)}
    shown |= {id(one) for one in records if is_of_sweep(one)}
    rest = [one for one in records if id(one) not in shown and not isinstance(one, Reproduction)]
    blocks = []
    for command in dict.fromkeys(one.command for one in rest):
        here = [one for one in rest if one.command == command]
        rows = [[one.metric, str(one.labels), one.value, one.unit, one.origin, one.machine] for one in here]
        columns = ("metric", "labels", "value", "unit", "how", "machine")
        blocks.append(Table(shortened(command) or "no command", columns, rows, Sources.of(here), words=2, closed=True))
    about = "Records that no section above shows."
    return Section("rest", "Other records", about, blocks) if blocks else None
