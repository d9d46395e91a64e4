"""Tables of a report as Markdown and CSV."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from .._files import write_text
from .blocks import Block, Cards, Cell, Comparison, Estimate, Section, Table, raw, text
from .comparison import as_table


def markdown_report(title: str, sections: Sequence[Section]) -> str:
    """Every table under its section's heading, with where it comes from."""
    parts = [f"# {title}"]
    for section in sections:
        tables = list(_tables(section))
        parts += [f"## {section.title}", section.about] if tables else []
        parts += [_markdown(table) for table in tables]
    return "\n\n".join(parts) + "\n"


def write_csv(folder: Path, sections: Sequence[Section]) -> list[Path]:
    """A file a table, all digits of all figures, errors in columns of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for section in sections:
        for table in _tables(section):
            path = _free(folder, f"{section.key}-{_slug(table.title)}", written)
            write_text(path, _csv(table))
            written.append(path)
    return written


def _tables(section: Section) -> Iterator[Table]:
    for block in section.blocks:
        table = _as_table(block)
        if table is not None:
            yield table


def _as_table(block: Block) -> Table | None:
    if isinstance(block, Cards):
        rows = [[card.label, card.figure, card.detail] for card in block.cards]
        return Table(block.title, ["what", "figure", "of"], rows, block.sources, words=3)
    if isinstance(block, Comparison):
        return as_table(block)
    return block if isinstance(block, Table) else None


def _markdown(table: Table) -> str:
    words = ["---"] * table.words + ["---:"] * (len(table.columns) - table.words)
    deviation = table.columns.index("deviation") if "deviation" in table.columns else None
    lines = [[_plain(column) for column in table.columns], words]
    lines += [[_shown(cell, row, index == deviation) for index, cell in enumerate(row)] for row in table.rows]
    rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    sources = table.sources
    how = ", ".join([*sources.origins, *map(_plain, sources.builds)])
    where = f"{how}; {'; '.join(map(_plain, sources.machines))}"
    commands = "\n".join(f"    {' '.join(command.split())}" for command in sources.commands)
    return f"### {_plain(table.title)}\n\n{rows}\n\n{where}\n\n{commands}"


def _shown(cell: Cell, row: Sequence[Cell], is_deviation: bool) -> str:
    if not is_deviation or not isinstance(cell, float | int):
        return _plain(text(cell))
    return f"{cell:+.1f} points" if row[3] == "%" else f"{100 * cell:+.1f} %"


def _plain(words: str) -> str:
    """That neither ends a cell nor is Markdown or HTML."""
    escaped = re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", words)
    return " ".join(escaped.split())


def _csv(table: Table) -> str:
    errors = [any(isinstance(row[index], Estimate) for row in table.rows) for index in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out)
    pairs = zip(table.columns, errors, strict=True)
    writer.writerow([name for column, has in pairs for name in (column, *([f"{column}, error"] if has else []))])
    for row in table.rows:
        writer.writerow([value for cell, has in zip(row, errors, strict=True) for value in _values(cell, has)])
    return out.getvalue()


def _values(cell: Cell, has_error: bool) -> list[object]:
    error = cell.error if isinstance(cell, Estimate) else None
    return [raw(cell), *([error] if has_error else [])]


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "table"


def _free(folder: Path, name: str, taken: Sequence[Path]) -> Path:
    path, number = folder / f"{name}.csv", 2
    while path in taken:
        path, number = folder / f"{name}-{number}.csv", number + 1
    return path
