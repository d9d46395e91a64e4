"""The list of subcommands: what stands for each in `tilepress --help` until it is run."""

import inspect

import pytest
import typer
from typer.completion import completion_init

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
        ("tilepress simulate deca --time", ["--timeline"]),
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
