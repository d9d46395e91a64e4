"""Without the lab extra the core works, and all else says in one sentence what is missing."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.models import tiny
from tilepress import _extras
from tilepress.cli.app import COMMANDS

ROOT = Path(__file__).parents[1]
# Packages whose entry in sys.modules is None cannot be imported.
WITHOUT_LAB = f"import sys; sys.modules.update(dict.fromkeys({_extras.LAB}))\n"
TYPED = "from tilepress.cli import main; sys.argv[0] = 'tilepress'; main()"
# Every package of the core, and several commands in one process; what one prints is a JSON string on a line.
TYPED_IN_TURN = """
import contextlib, io, json
import tilepress.bench, tilepress.compression, tilepress.evaluate, tilepress.formats, tilepress.hardware
import tilepress.kernels, tilepress.models, tilepress.nn, tilepress.roofsurface, tilepress.tiles
from tilepress.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["tilepress", *words]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main()
    print(json.dumps(printed.getvalue()))
"""
CORE = [
    "demo",
    "compress",
    "generate",
    "serve",
    "search",
    "allocate",
    "doctor",
    "eval",
    "formats",
    "export",
    "inspect",
    "push",
    "pull",
    "sweep",
    "bench",
]
# Files of the core that need the lab for a part of what they do, and call `need_lab` for it.
IN_PART = {"hardware/here.py"}
PACKAGES = ["paper", "paper.deca", "report", "report.plots", "simulate", "simulate.deca"]


def python(code, *arguments):
    command = [sys.executable, "-W", "error", "-c", WITHOUT_LAB + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "2"})


def tilepress(*arguments):
    return python(TYPED, *arguments)


def assert_says(done, what):
    assert done.returncode == 1 and not done.stdout
    assert done.stderr == f"tilepress: error: {what} needs the lab extra: pip install 'tilepress[lab]'\n"


def test_the_list_is_that_of_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, names in (("lab", _extras.LAB), ("rtl", _extras.RTL), ("serve", _extras.SERVE)):
        listed = sorted(re.split(r"[^\w-]", line)[0].replace("-", "_") for line in extras[extra])
        assert listed == sorted(names)
        assert any(extra in line for line in extras["dev"])


def test_every_command_is_of_the_core_or_of_the_lab():
    assert [name for name, entry in COMMANDS.items() if not entry.needs_lab] == CORE


def test_the_core_imports_nothing_of_the_lab():
    source = ROOT / "src/tilepress"
    imports = re.compile(rf"^\s*(?:from|import) ({'|'.join(_extras.LAB)})\b", re.M)
    files = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if imports.search(path.read_text())}
    core = {name for name in files if name.partition("/")[0] not in ("paper", "report", "simulate")}
    assert core == IN_PART and all("need_lab(" in (source / name).read_text() for name in core)


@pytest.mark.parametrize(
    "typed",
    [
        ("simulate", "deca"),
        ("simulate", "unit", "anda-apu"),
        ("reproduce", "--list"),
        ("report",),
        ("roofsurface",),
    ],
    ids=" ".join,
)
def test_a_command_of_the_lab(typed):
    assert_says(tilepress(*typed), f"`tilepress {typed[0]}`")


@pytest.mark.parametrize(
    "typed, option",
    [
        (("compress", "nowhere", "-o", "small", "--html", "page.html"), "compress --html"),
        (("demo", "--html", "page.html"), "demo --html"),
        (("doctor", "--machine", "this.yaml"), "doctor --machine"),
        (("bench", "linear", "--predict"), "bench linear --predict"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_an_option_of_the_lab_is_refused_before_any_work(typed, option):
    assert_says(tilepress(*typed), f"`tilepress {option}`")


def test_packages_of_the_lab():
    lines = [
        f"try: import tilepress.{package}\nexcept ImportError as error: print(error)\nelse: print('imported')\n"
        for package in PACKAGES
    ]
    done = python("".join(lines))
    assert done.returncode == 0, done.stderr
    for package, said in zip(PACKAGES, done.stdout.splitlines(), strict=True):
        name, sentence = said.split(" ", 1)
        assert f"tilepress.{package}.".startswith(f"{name}.")
        assert sentence == "needs the lab extra: pip install 'tilepress[lab]'"


def test_help_needs_no_extra():
    done = python(
        "from tilepress.cli.app import COMMANDS, app\n"
        "for name in COMMANDS: app([name, '--help'], standalone_mode=False)\n"
        "app(['simulate', 'deca', '--help'], standalone_mode=False)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") == len(COMMANDS) + 1


def test_doctor_leaves_out_what_it_cannot_measure():
    done = tilepress("doctor", "--json")
    metrics = {record["metric"] for record in json.loads(done.stdout)}
    assert {"active_isa", "read_bandwidth"} <= metrics and "cpu_frequency" not in metrics
    busy = "this machine is busy", "matrix units were not counted"  # as it may be
    told = [line for line in done.stderr.splitlines() if not any(words in line for words in busy)]
    assert told == ["measuring the frequency of this processor needs the lab extra: pip install 'tilepress[lab]'"]


def test_a_model_is_compressed_run_and_evaluated(tmp_path):
    model, text = tiny.save(tmp_path / "model", max_position_embeddings=512)
    model, text, small = str(model), str(text), str(tmp_path / "small")
    calibration = ["--calibration", text, "--sequences", "2", "--length", "32"]
    commands = [
        ["compress", model, "-o", small, "--weights", "int4:g32", "--acts", "int8", *calibration],
        ["generate", small, "a", "--tokens", "2"],
        ["eval", small, "--data", text, "--window", "64", "--windows", "1"],
        ["bench", "linear", "int4:g32", "--shape", "64x64", "--repeats", "1", "--no-peers"],
    ]
    done = python(TYPED_IN_TURN, json.dumps(commands))
    compressed, generated, evaluated, timed = map(json.loads, done.stdout.splitlines())
    assert "error of" in compressed and generated.strip(), done.stderr
    assert "perplexity" in evaluated and "int4:g32" in timed, done.stderr
