"""Commands that measure nothing: what they import, and what they print where only ASCII can be shown."""

import os
import subprocess
import sys

import pytest

from tilepress.cli.formats import gaussian_sqnr
from tilepress.cli.formats_sqnr import KEPT
from tilepress.formats import parse_weight, weight_names

HEAVY = ("torch", "transformers", "numba", "scipy")
LIGHT = [
    "--version",
    "--help",
    "formats",
    "formats int4:g32 --json",
    "formats --help",
    "eval --help",
    "roofsurface --list",
    "roofsurface --help",
    "simulate --help",
    "simulate deca --help",
    "simulate array --list",
    "simulate array --help",
    "simulate compare --help",
    "reproduce --help",
    "doctor --help",
    "bench linear --help",
    "bench serve --help",
    "serve --help",
]
PROGRAM = """
import sys
from tilepress.cli import main
sys.argv = ["tilepress", *sys.argv[1:]]
try:
    main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
ONLY_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(arguments, **environment):
    command = [sys.executable, "-c", PROGRAM, *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    return subprocess.run(command, capture_output=True, env=kept | environment)


@pytest.mark.parametrize("command", LIGHT)
def test_a_light_command_imports_nothing_heavy_and_speaks_ascii(command):
    done = run(command.split(), **ONLY_ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and done.stdout.strip() and b"Error" not in done.stderr
    assert not {*HEAVY} & {*done.stderr.decode().split()}


def test_signs_have_a_near_spelling_and_tables_stay_straight():
    done = run(["roofsurface", "--list"], PYTHONIOENCODING="ascii")
    lines = done.stdout.decode("ascii").splitlines()
    assert any("2 x 512 bits" in line for line in lines) and "?" not in done.stdout.decode()
    rule = next(line for line in lines if line.startswith("---"))
    assert len(rule) == max(map(len, lines[2:]))


def test_records_and_names_of_files_lose_nothing(tmp_path):
    path = tmp_path / "µ.json"
    path.write_text(
        '[{"metric": "time", "labels": {"of": "µ…"}, "value": 1, "unit": "s", "origin": "measured",'
        ' "machine": "m", "command": "c"}]',
        "utf-8",
    )
    done = run(["report", str(path), "--json"], **ONLY_ASCII)
    assert done.returncode == 0, done.stderr
    assert b'{"of": "\\u00b5\\u2026"}' in done.stdout
    missing = run(["report", os.fsencode(tmp_path) + b"/\xb5.json"], **ONLY_ASCII)
    assert missing.returncode == 1 and b"/\xb5.json: No such file" in missing.stderr


@pytest.mark.parametrize("name", weight_names())
def test_the_kept_sqnr_is_what_would_be_measured(name):
    assert KEPT[str(parse_weight(name))] == pytest.approx(gaussian_sqnr(parse_weight(name)), abs=1e-3)


def test_a_format_without_a_kept_sqnr_is_measured(call_for_records):
    figure = call_for_records("formats", "int4:g64")
    assert figure("sqnr") == pytest.approx(gaussian_sqnr(parse_weight("int4:g64"))) and "int4:g64" not in KEPT
