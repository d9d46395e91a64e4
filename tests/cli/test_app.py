"""The list of subcommands: what stands for each in `tilepress --help` until it is run."""

import inspect

import pytest
import typer
from typer.completion import completion_init

from tilepress.cli import completion
from tilepress.cli.app import COMMANDS, app, load


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_help(name):
    first, _, _ = inspect.cleandoc(load(name).help).partition("\n\n")
    assert " ".join(first.split()) == COMMANDS[name].summary


def test_every_module_of_a_command_is_listed_once():
    assert len({entry.target for entry in COMMANDS.values()}) == len(COMMANDS)
    assert list(typer.main.get_command(app).commands) == list(COMMANDS)


@pytest.mark.parametrize(
    "typed, completed",
    [
        ("tilepress do", ["doctor"]),
        ("tilepress bench lin", ["linear"]),
        ("tilepress doctor --mach", ["--machine"]),
        ("tilepress simulate deca --ht", ["--html"]),
        ("tilepress formats int4", ["int4:g32"]),
        ("tilepress compress smollm2-135m --weights nf", ["nf4:g64"]),
        ("tilepress roofsurface --machine spr", ["spr-ddr", "spr-hbm"]),
        ("tilepress roofsurface --machine he", ["here"]),
        ("tilepress simulate array harm", ["harmonia"]),
        ("tilepress simulate array --model llama3.2-3", ["llama3.2-3b"]),
        ("tilepress eval smol", ["smollm2-135m"]),
    ],
)
def test_shells_complete_commands_and_their_options(typed, completed, monkeypatch, capsys):
    completion_init()
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    monkeypatch.setenv("_TILEPRESS_COMPLETE", "complete_bash")
    with pytest.raises(SystemExit):
        app(prog_name="tilepress")
    assert capsys.readouterr().out.split() == completed


def test_models_are_completed_from_folders_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("models/one", "more"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("models/one/config.json", "models/two.gguf", "models/notes.txt"):
        (tmp_path / file).write_text("{}")
    assert completion.models("mo") == ["models/", "more/"]
    assert completion.models("models/") == ["models/one", "models/two.gguf"]
    assert completion.models("nowhere/x") == []


@pytest.mark.parametrize(
    "typed, new",
    [
        ("roofsurface --plot x.html", "--html"),
        ("roofsurface --activations int8", "--acts"),
        ("simulate deca --timeline x.html", "--html"),
        ("simulate compare --page x.html", "--html"),
        ("report -o x.html", "--html"),
        ("compress a -o b --report x.html", "--html"),
    ],
)
def test_an_option_that_was_renamed_names_the_new_one(typed, new, call):
    done = call(*typed.split())
    assert done.returncode == 2 and "No such option" in done.stderr and new in done.stderr


def test_only_a_command_that_has_the_new_option_names_it(call):
    done = call("doctor", "--plot", "x.html")
    assert done.returncode == 2 and "No such option" in done.stderr and "--html" not in done.stderr
