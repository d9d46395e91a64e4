"""Families of records: what their names say, and a table of each.

A name is read by a pattern: groups of it are words, and make the row; the group `what` is the figure, and makes the
column, with the group `more` if there is one. A figure's error or standard deviation shares its cell.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..records import Record
from .blocks import Cell, Estimate, Sources, Table, number, unit_text

ERRORS = (".error", ".sigma")


@dataclass(frozen=True)
class Family:
    """`commands`: how those begin that give such records. `headings`: of groups and figures, where they are not their
    own names. `by_command`: what different commands give has different rows."""

    title: str
    commands: str | tuple[str, ...]
    pattern: str
    headings: Mapping[str, str] = field(default_factory=dict)
    by_command: bool = False

    def heading(self, name: str) -> str:
        before, is_ratio, peer = name.partition("over.")
        if is_ratio:
            return f"{before.rstrip('.')} × {peer}".lstrip()
        head, _, rest = name.partition(".")
        if rest and head in self.headings and name not in self.headings:
            return f"{self.headings[head]} {rest}".replace("_", " ").replace(".", " ")
        return self.headings.get(name, name.replace("_", " ").replace(".", " "))


@dataclass(frozen=True)
class Figure:
    """A record read: `words` by group, and `what` it is of them."""

    words: Mapping[str, str]
    what: str
    record: Record
    is_error: bool = False


def read(family: Family, records: Iterable[Record]) -> list[Figure]:
    """The figures among `records` that belong to the family."""
    pattern = re.compile(family.pattern, re.DOTALL)
    return [one for record in records if (one := _figure(family, pattern, record)) is not None]


def _figure(family: Family, pattern: re.Pattern[str], record: Record) -> Figure | None:
    if not record.command.startswith(family.commands):
        return None
    ending = next((one for one in ERRORS if record.name.endswith(one)), "")
    found = pattern.fullmatch(record.name.removesuffix(ending))
    if found is None:
        return None
    groups = {name: value or "" for name, value in found.groupdict().items()}
    words = {name: value for name, value in groups.items() if name not in ("what", "more")}
    if family.by_command:
        words = {"command": shortened(record.command), **words}
    return Figure(words, groups["what"] + groups.get("more", ""), record, bool(ending))


def shortened(command: str) -> str:
    return command.removeprefix("tilepress ").removesuffix(" --json")


def table(family: Family, figures: Iterable[Figure]) -> Table | None:
    """One row for what has the same words and machine; None where there is nothing."""
    found = list(figures)
    if not found:
        return None
    several = len({one.record.machine for one in found}) > 1
    groups = [name for name in found[0].words if _tells(name, {one.words[name] for one in found})]
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    columns: dict[str, None] = {}
    for one in sorted(found, key=lambda figure: figure.is_error):
        key = (*([one.record.machine] if several else []), *(one.words[name] for name in groups))
        column = _column(family, one)
        columns.setdefault(column)
        row = rows.setdefault(key, {})
        row[column] = _with_error(row.get(column), one) if one.is_error else one.record.value
    names = [*(["machine"] if several else []), *(family.heading(name) for name in groups)]
    cells = [[*key, *(row.get(column) for column in columns)] for key, row in rows.items()]
    sources = Sources.of(one.record for one in found)
    return Table(family.title, [*names, *columns], cells, sources, words=len(names))


def _tells(group: str, words: set[str]) -> bool:
    """Whether it is worth a column; a command that is everywhere the same stands below the table."""
    return any(words) and (group != "command" or len(words) > 1)


def _column(family: Family, figure: Figure) -> str:
    heading, unit = family.heading(figure.what), unit_text(figure.record.unit)
    return f"{heading}, {unit}" if unit not in ("", "×") else heading


def _with_error(cell: Cell, figure: Figure) -> Cell:
    error = number(figure.record.value)
    if isinstance(cell, Estimate) or cell is None or error is None:
        return cell
    return Estimate(cell, error)


SHAPE = r"(?P<shape>\d+x\d+)"
SHARE_OF_READ = "share of the read bandwidth"
SHARE = {"share_of_read_bandwidth": SHARE_OF_READ}
QUALITY = Family(
    "Quality",
    "tilepress eval",
    r"(?P<model>.+)\.(?P<on>[^.]+)\.(?P<what>perplexity|reference_perplexity|perplexity_ratio|kl_divergence"
    r"(\.p[\d.]+)?|same_top1|accuracy|accuracy_normalised|acc|acc_norm|exact_match|tokens|items)",
    {"same_top1": "same top-1 token", "kl_divergence": "KL divergence", "accuracy_normalised": "accuracy, normalised"},
)
COMPRESSED = Family(
    "What was compressed",
    "tilepress compress",
    r"((?P<model>.+)\.)?(?P<what>size\.before|size\.after|compression|bits_per_weight|time|search\.activations"
    r"|search\.loss|search\.bops_saving)",
    {"compression": "times smaller", "size.before": "size before", "size.after": "size after", "command": "by"},
    by_command=True,
)
DEMO = Family(
    "The demonstration",
    "tilepress demo",
    r"(?P<model>.+?)\.(?P<what>size|perplexity|kl_divergence|same_top1|prefill|decode|decode\.predicted)",
    {"kl_divergence": "KL divergence", "same_top1": "same top-1 token", "decode.predicted": "decode, predicted"},
)
MODELS = Family(
    "Whole models",
    "tilepress bench model",
    r"(?P<model>.+)\.(?P<what>prefill|decode)\.(prompt|depth)_(?P<depth>\d+)\.batch_(?P<batch>\d+)"
    r"(?P<more>\.(bytes_read|share_of_read_bandwidth|over\..+))?",
    {"depth": "tokens before", "decode.bytes_read": "read a step", "decode.share_of_read_bandwidth": SHARE_OF_READ},
)
LARGE = Family(
    "Models of large shapes",
    "python benchmarks/",
    r"(?P<model>.+)\.(?P<what>(prefill|decode)(\.over\..+)?)",
)
LINEAR = Family(
    "Linear layers",
    "tilepress bench linear",
    rf"(?P<name>.+)\.{SHAPE}\.b(?P<batch>\d+)\.(?P<what>time|rate|share_of_read_bandwidth|kernel|over\..+"
    r"|least_time|predicted_time|predicted_bound)",
    {"name": "weights + activations", "rate": "weights read", **SHARE},
)
PACKING = Family(
    "Packing and unpacking",
    "tilepress bench pack",
    rf"(?P<format>.+)\.{SHAPE}\.d(?P<density>[\d.]+)\.(?P<what>pack|unpack|size|peak_over_size)",
    {"peak_over_size": "peak memory over size"},
)
ATTENTION = Family(
    "Attention over a cache",
    "tilepress bench attention",
    r"(?P<cache>.+)\.(?P<heads>[^.]+)\.depth_(?P<depth>\d+)\.(?P<what>time|size|rate|share_of_read_bandwidth|over\..+)",
    {"depth": "tokens in the cache", "rate": "cache read", **SHARE},
)
PROMPTS = Family(
    "Attention of prompts",
    "tilepress bench attention",
    r"(?P<cache>.+)\.(?P<heads>[^.]+)\.prompt_(?P<tokens>\d+)\.(?P<what>time|size|over\..+)",
    {"tokens": "tokens of the prompt"},
)
MACHINES = Family(
    "Machines",
    "tilepress doctor",
    r"(?P<what>cpu\.model|cpu\.cores|cpu\.frequency|cpu\.last_level_cache|isa\.active|read_bandwidth\.threads_\d+"
    r"|vector_rate|matrix_rate|matrix_rows|version\.tilepress|version\.torch)",
)
KERNEL = r"(?P<machine_name>.+?)\.(?P<kernel>[^@]+@[\d.]+%)"
ROOFS = Family(
    "Kernels on the Roof-Surface",
    "tilepress roofsurface",
    KERNEL + r"\.(?P<what>(memory|vector|matrix|front end)\.(demand|limit)|bound_by|headroom|rate|roofline"
    r"|weights_read|instead)",
    {"machine_name": "machine", "kernel": "weights @ density", "rate": "Roof-Surface", "command": "by"},
    by_command=True,
)
ENGINES = Family(
    "DECA and software, simulated",
    "tilepress simulate deca",
    r"(?P<machine_name>.+?)\.(?P<system>[^@]+)\.(?P<kernel>[^@.]+@[\d.]+%)\.(?P<what>time|rate|cycles_per_tile|memory"
    r"|matrix|decompressor|stall\..+|lines\..+|area|power|[^.]+\.next_token(\.gemms)?)",
    {"machine_name": "machine", "kernel": "weights @ density", "memory": "memory busy", "matrix": "matrix units busy",
     "decompressor": "decompressor busy"},
)  # fmt: skip
TILES = Family(
    "First tiles of a core",
    "tilepress simulate deca",
    r"(?P<system>.+)\.tile\.(?P<tile>\d+)\.(?P<what>.+\.(start|cycles))",
)
ARRAYS = Family(
    "Accelerators, simulated",
    ("tilepress simulate array", "tilepress simulate compare"),
    r"(?P<design>[^.]+)\.(?P<task>.+)\.(?P<what>time|rate|utilisation|dram|power|(energy|area)(\..+)?|bound|loss|on_front)",
)
UNITS = Family(
    "Units, cycle by cycle",
    "tilepress simulate unit",
    r"(?P<unit>.+?)\.(?P<what>cycles|cycles\.formula|total|equal|events\..+)",
    {"cycles.formula": "cycles by the formula", "equal": "every bit is right"},
)
SEARCH = Family(
    "Search for mantissas",
    "tilepress search",
    r"(?P<what>activations|within_tolerance|iterations|perplexity\.fp|perplexity|loss|bops_saving|time|gptq\.time"
    r"|brute_force\.(activations|bops_saving|tried))",
    {"bops_saving": "times fewer bit operations", "perplexity.fp": "perplexity before", "command": "by"},
    by_command=True,
)
SCHEMES = Family(
    "Formats of activations",
    "tilepress search",
    r"(?P<text>[^.]+)\.(?P<scheme>.+)\.(?P<what>perplexity|loss|bops_saving)",
    {"bops_saving": "times fewer bit operations", "command": "by"},
    by_command=True,
)
STEPS = Family(
    "Steps of a search",
    "tilepress search",
    r"step\.(?P<step>\d+)\.(?P<what>mantissas|loss|accepted)",
    by_command=True,
)
