"""Tables as terminals of any width show them: whole figures, few lines a cell, and nothing left out."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from random import Random

import pytest

from tilepress.cli import tables
from tilepress.cli.tables import MOST_LINES, table_lines, text_width, wrapped

WIDTHS = (60, 80, 120)
SEPARATORS = str.maketrans(",;", "  ")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?![\w.])")

# A command for every table that takes seconds at most; those of models are in `test_compress` and `test_eval`.
COMMANDS = [
    "formats",
    "roofsurface --list",
    "roofsurface --weights mxfp4 --weights bf8 --instead deca --density 0.2",
    "roofsurface --weights bf8 --search --bandwidth 1 --bandwidth 2",
    "simulate deca --fitted",
    "simulate array --list",
    "simulate array --fitted",
    "simulate array harmonia --model llama3.2-3b --tokens 2048 --each",
    "simulate compare anda harmonia --tokens 2048",
    "simulate unit anda-apu --groups 2",
    "reproduce --list deca",
    "reproduce --list deca/table2",
    "doctor --all",
    "bench pack int4:g32 --neurons 64 --inputs 64 --repeats 1",
    "bench linear int4:g32 --shape 256x512 --repeats 1 --seconds 0",
]


@pytest.fixture
def made(monkeypatch):
    """Arguments of all tables that are made."""
    tables_made, make = [], tables.table_lines

    def record(*arguments):
        tables_made.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(tables, "table_lines", record)
    return tables_made


@pytest.mark.parametrize("command", COMMANDS)
def test_no_width_cuts_a_figure_of_a_command(command, call, made):
    assert call(*command.split()).returncode == 0
    assert made and any(rows for _, rows, _, _ in made)
    for columns, rows, words, _ in made:
        for width in WIDTHS:
            check(columns, rows, words, width)


def check(columns, rows, words, width):
    """Every number of a cell is in the lines, as often as in the cells, and no line is too long for no reason."""
    lines = table_lines(columns, rows, words, width).lines
    longest = max(text_width(word) for row in [columns, *rows] for cell in row for word in cell.split())
    assert all(text_width(line) <= max(width, longest + len("  ;")) for line in lines)
    shown = NUMBER.findall(" \n".join(lines).translate(SEPARATORS))
    for row in rows:
        for cell in row:
            for number in NUMBER.findall(cell.translate(SEPARATORS)):
                assert number in shown, (number, width)


WORDS = ["word", "int4:g32+int8", "538.25", "-1.5", "bound", "± 0.2", ""]


@pytest.mark.parametrize("seed", range(40))
def test_all_words_are_there_in_tables_of_any_width(seed):
    random = Random(seed)
    columns = [f"column {index}" for index in range(random.randint(1, 9))]
    rows = [[" ".join(random.choices(WORDS, k=random.randint(0, 12))) for _ in columns] for _ in range(4)]
    for width in (20, *WIDTHS):
        shown = " ".join(table_lines(columns, rows, 1, width).lines).translate(SEPARATORS).split()
        for word in {word for row in rows for cell in row for word in cell.split()}:
            assert shown.count(word) == sum(cell.split().count(word) for row in rows for cell in row)


def test_a_table_that_fits_is_one_and_its_words_wrap_before_it_is_stacked():
    rows = [["a long name of a row", "538.25"], ["b", "-1.5"]]
    assert table_lines(["name", "value"], rows, 1, 80).lines[2:] == [
        "a long name of a row  538.25",
        "b" + " " * 23 + "-1.5",
    ]
    assert table_lines(["name", "value"], rows, 1, 20).lines[2:] == [
        "a long name   538.25", "of a row", "b               -1.5",
    ]  # fmt: skip
    assert table_lines(["name", "value"], rows, 1, 11).lines == [
        "a long name", "of a row", "  value:", "  538.25", "b", "  value:", "  -1.5",
    ]  # fmt: skip


def test_a_cell_has_few_lines_in_a_table():
    rows = [["name", "a note of many words " * 10, "1.5"]]
    lines = table_lines(["name", "note", "value"], rows, 2, 90)
    assert lines.heads and len(lines.lines) <= 2 + MOST_LINES
    assert not table_lines(["name", "note", "value"], rows, 2, 60).heads


@pytest.mark.parametrize("text, width", [("µs", 2), ("× 2 ± 1", 7), ("模型", 4), ("e\N{COMBINING ACUTE ACCENT}", 1)])
def test_widths_are_those_of_a_terminal(text, width):
    assert text_width(text) == width


def test_a_word_that_is_too_long_stays_whole():
    assert wrapped("a /very/long/path b", 6) == ["a", "/very/long/path", "b"]


def test_a_terminal_gets_styles_and_its_width_and_a_pipe_neither():
    command = [sys.executable, "-m", "tilepress", "formats", "int4:g32", "nf4:g64"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped and "× at 100%" in piped
    shown = in_terminal(command, 40)
    assert "\x1b[1m" in shown or "bits per weight: 4.50" in shown
    assert max(map(text_width, plain(shown).splitlines()[2:])) <= 40
    assert set(NUMBER.findall(piped)) <= set(NUMBER.findall(plain(shown).translate(SEPARATORS)))


def in_terminal(command, columns):
    """What a terminal of so many columns is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


def plain(text):
    return re.sub(r"\x1b\[\d+m", "", text)
