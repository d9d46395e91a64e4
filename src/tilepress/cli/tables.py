"""Tables for people: no figure is ever cut. One that is too wide wraps its words, then becomes one block per row."""

import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from shutil import get_terminal_size

from .ascii import fitted

PIPED = 1000  # columns into a file or a pipe: lines of most tables stay whole, however long
MOST_LINES = 3  # of a cell
GAP = "  "
INDENT = "  "
LONGEST_FIGURE = 24  # characters; what is longer has words that may wrap
FIGURE = re.compile(r"(?:[<>≤≥~] ?)?[+-]?\d")
BOLD, ITALIC, PLAIN = "\x1b[1m", "\x1b[3m", "\x1b[0m"


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1, width: int = PIPED
) -> None:
    """A table on standard output: the first `words` columns to the left, figures to the right. Lines are `width` wide
    at most where no terminal says otherwise."""
    shown = [[fitted(cell) for cell in row] for row in rows]
    room, styled = output_width(width), sys.stdout.isatty()
    lines = table_lines([fitted(name) for name in columns], shown, words, room)
    for line in wrapped(fitted(title), room):
        print(f"{ITALIC}{line}{PLAIN}" if styled else line)
    print()
    heads = lines.heads if styled else 0
    for number, line in enumerate(lines.lines):
        print(f"{BOLD}{line}{PLAIN}" if number < heads else line)
    print()


def output_width(piped: int = PIPED) -> int:
    return get_terminal_size().columns if sys.stdout.isatty() else piped


class Lines:
    """`heads`: how many of the lines name the columns."""

    def __init__(self, heads: int, lines: list[str]) -> None:
        self.heads, self.lines = heads, lines


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], words: int, width: int) -> Lines:
    """As a table where it fits into `width`, else row by row."""
    widths = _widths(columns, rows, width)
    if widths is None:
        return Lines(0, [line for row in rows for line in _stacked(columns, row, words, width)])
    heads = _laid_out(columns, widths, words) if any(columns) else []
    rule = [GAP.join(fitted("─") * one for one in widths)] if heads else []
    return Lines(len(heads), [*heads, *rule, *(line for row in rows for line in _laid_out(row, widths, words))])


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Of each column; None if they need more than `width`, however words wrap."""
    cells = [[name, *(row[index] for row in rows)] for index, name in enumerate(columns)]
    room = width - len(GAP) * (len(columns) - 1)
    natural = [max(map(text_width, column)) for column in cells]
    if sum(natural) <= room:
        return natural
    widths = [max(_least_width(name), *map(_least_width, column), 0) for name, *column in cells]
    left = room - sum(widths)
    if left < 0:
        return None
    for index, wanted in enumerate(natural):
        more = min(wanted - widths[index], left)
        widths[index] += more
        left -= more
    return widths


@cache
def _least_width(cell: str) -> int:
    """The narrowest that keeps figures and words whole, in few lines."""
    natural = text_width(cell)
    if FIGURE.match(cell) and natural <= LONGEST_FIGURE:
        return natural
    least = max(map(text_width, cell.split()), default=0)
    return next((one for one in range(least, natural) if len(wrapped(cell, one)) <= MOST_LINES), natural)


def _laid_out(row: Sequence[str], widths: Sequence[int], words: int) -> list[str]:
    """The lines of one row."""
    cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        placed = [_placed(part, widths[index], index < words) for index, part in enumerate(parts)]
        lines.append(GAP.join(placed).rstrip())
    return lines


def _placed(text: str, width: int, to_the_left: bool) -> str:
    blanks = " " * (width - text_width(text))
    return text + blanks if to_the_left else blanks + text


def _stacked(columns: Sequence[str], row: Sequence[str], words: int, width: int) -> list[str]:
    """Its words, and below them `name value` of each figure; as many on a line as it takes."""
    head = wrapped("; ".join(filter(None, row[:words])), width)
    figures = [f"{name}: {cell}" if name else cell for name, cell in zip(columns, row, strict=True) if cell]
    named = figures[sum(1 for cell in row[:words] if cell) :]
    lines = [""]
    for index, figure in enumerate(named):
        text = figure + (";" if index < len(named) - 1 else "")
        joined = f"{lines[-1]} {text}" if lines[-1] else INDENT + text
        if text_width(joined) <= width:
            lines[-1] = joined
        else:
            parts = wrapped(text, width - len(INDENT))
            lines += [INDENT + part for part in parts]
    return [*head, *filter(None, lines)]


def wrapped(text: str, width: int) -> list[str]:
    """Lines broken at blanks only: a word that is longer than `width` stays whole."""
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and text_width(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def text_width(text: str) -> int:
    """Columns of a terminal: two of a wide character, none of one that joins another."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


@cache
def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
