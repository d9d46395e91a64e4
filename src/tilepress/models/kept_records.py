"""records.json of a compressed folder: what was measured of this model, for its card and for other programs.

It is an array of records as `--json` prints them. Two labels are added: `date`, and `weights`, which names the weights
that were measured; what is of other weights counts as nothing. Like the card it is not listed in SHA256SUMS. Paths are
cut to their last part: the folder is made to be shared.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from .._bounded import UnreadableError, read_bounded_text
from .._files import write_text
from ..records import Label, Record, RecordsError, from_json, to_json
from .checksums import CARD, LONGEST, is_own_card, is_weights, read_sums, sealed_card, unsealed
from .inspection.compressed import is_compressed_config
from .inspection.weights import read_json

RECORDS = "records.json"
MOST_ROWS = 60
_BEGIN, _END = "## What was measured\n", "<!-- end of what was measured -->\n"
_OWN = ("model", "date", "weights", "statistic")  # labels that have columns of their own, or none
_SPREADS = ("standard_error", "standard_deviation")


def check_keeps_records(name: str) -> Path:
    """The folder `name`; ValueError, before anything is measured, where records cannot be kept there."""
    folder = Path(name)
    if not (folder / "config.json").is_file() or not is_compressed_config(read_json(folder / "config.json", folder)):
        raise ValueError(f"--write-card writes to a folder that `tilepress compress` wrote, and {name} is none")
    weights_label(folder)
    if (folder / RECORDS).exists() and not is_own_records(folder / RECORDS):
        raise ValueError(f"{folder / RECORDS} is not as tilepress wrote it: move it away")
    return folder


def weights_label(folder: Path) -> str:
    """Changes when any file of weights does."""
    lines = [f"{digest}  {name}\n" for name, digest in sorted(read_sums(folder).items()) if is_weights(name)]
    if not lines:
        raise ValueError(f"{folder} has no checksums of its weights, which say what was measured: compress it again")
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def keep_records(folder: Path, records: Iterable[Record]) -> bool:
    """Add `records` to the folder's, in the place of earlier ones of the same, and show all on its card; False where
    somebody has edited that, so it stays as it is."""
    weights, today = weights_label(folder), date.today().isoformat()
    kept = {_same(record): record for record in read_records(folder)}
    for record in records:
        made = _shared(record, {"date": today, "weights": weights}, folder)
        kept[_same(made)] = made
    write_text(folder / RECORDS, to_json(kept.values()) + "\n")
    if not is_own_card(folder / CARD):
        return False
    write_text(folder / CARD, with_records(folder / CARD, list(kept.values())))
    return True


def read_records(folder: Path) -> list[Record]:
    """Those of the weights that are in the folder now."""
    if not is_own_records(folder / RECORDS):
        return []
    weights = weights_label(folder)
    return [one for one in _read(folder / RECORDS) if one.labels["weights"] == weights]


def is_own_records(path: Path) -> bool:
    """Whether `path` is a file of records that Tilepress wrote."""
    if path.name != RECORDS or not path.is_file():
        return False
    try:
        return all({"date", "weights"} <= one.labels.keys() for one in _read(path))
    except (RecordsError, UnreadableError):
        return False


def with_records(card: Path, records: Sequence[Record]) -> str:
    """The text of a card as Tilepress wrote it, with a table of `records` at its end."""
    text = unsealed(card)
    before, mark, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2] if mark else ""
    return sealed_card(before + after + table(records))


def table(records: Sequence[Record]) -> str:
    """Numbers with their spread, one a row."""
    shown = [one for one in records if "statistic" not in one.labels and _is_number(one)][-MOST_ROWS:]
    spreads = {_key(one): one for one in records if one.labels.get("statistic") in _SPREADS and _is_number(one)}
    machines = list(dict.fromkeys(one.machine for one in shown))
    rows = [[*_row(one, spreads.get(_key(one))), str(machines.index(one.machine) + 1)] for one in shown]
    lines = ["| what | value | unit | date | machine |", "|---|---:|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    listed = [f"{number}. {_cell(machine)}" for number, machine in enumerate(machines, 1)]
    return "\n".join([_BEGIN, *lines, "", "Machines:", "", *listed, "", _END, ""])


def _row(record: Record, spread: Record | None) -> list[str]:
    labels = [f"{name} {label}" for name, label in record.labels.items() if name not in _OWN]
    what = ", ".join([record.metric.replace("_", " "), *labels])
    value = _number(record.value) + (f" ± {_number(spread.value)}" if spread else "")
    return [_cell(what), value, _cell(record.unit), _cell(str(record.labels["date"]))]


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return re.sub(r"[|<>\n]", " ", text)


def _is_number(record: Record) -> bool:
    return isinstance(record.value, int | float) and not isinstance(record.value, bool)


def _key(record: Record) -> tuple[object, ...]:
    labels = {name: label for name, label in record.labels.items() if name != "statistic"}
    return record.metric, frozenset(labels.items()), record.machine


def _same(record: Record) -> tuple[object, ...]:
    """Equal for a figure that was measured again."""
    labels = {name: label for name, label in record.labels.items() if name != "date"}
    return record.metric, frozenset(labels.items()), record.machine


def _shared(record: Record, more: Mapping[str, Label], folder: Path) -> Record:
    """Without folders of this machine."""
    name = folder.resolve().name
    labels = {key: name if key == "model" else _last_part(label) for key, label in record.labels.items()}
    command = " ".join(str(_last_part(word)) for word in record.command.split(" "))
    return replace(record, labels={**labels, **more}, command=command)


def _last_part(label: Label) -> Label:
    """Of a path that is here; names with a slash in them, a repository's say, stay."""
    is_path = isinstance(label, str) and "/" in label and (label.startswith(("/", "~", ".")) or Path(label).exists())
    return Path(str(label)).name if is_path else label


def _read(path: Path) -> list[Record]:
    return from_json(read_bounded_text(path, LONGEST), path)
