"""The `tilepress` command. A subcommand's module is imported when the subcommand is run, not for `tilepress --help`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from .._extras import need_lab


class Entry(NamedTuple):
    """`target`: "module:attribute", a function or a typer app. `summary`: its line in `tilepress --help`, which a test
    compares with its docstring. `needs_lab`: whether nothing of it works without the lab extra."""

    target: str
    summary: str
    needs_lab: bool = False


COMMANDS = {
    "demo": Entry(
        "demo:demo",
        "Compress a model to 4 bits in two ways; show what that costs in quality and gives in size and speed.",
    ),
    "compress": Entry(
        "compress:compress",
        "Compress a model block by block into a folder that transformers loads after `import tilepress`.",
    ),
    "generate": Entry(
        "generate:generate",
        "Continue a prompt, printing tokens as they come; tokens a second on standard error at the end.",
    ),
    "serve": Entry("serve:serve", "Serve models to programs that speak OpenAI's API, until it is told to stop."),
    "search": Entry(
        "search:search",
        "Find the cheapest mantissas of Anda's activations that lose no more perplexity than the tolerance.",
    ),
    "allocate": Entry(
        "allocate:allocate",
        "Choose a format and a density for each layer, so that a model within a budget of bytes loses least.",
    ),
    "doctor": Entry(
        "doctor:doctor", "Show the processor, the kernels chosen for it, and the read bandwidth measured now."
    ),
    "eval": Entry(
        "eval:evaluate",
        "Measure a model: perplexity on a text, divergence from a reference model, accuracy on tasks.",
    ),
    "formats": Entry(
        "formats:formats",
        "List weight formats: bits per weight, times smaller than BF16 at several densities, and SQNR.",
    ),
    "export": Entry(
        "export:export",
        "Write a compressed model for other tools, with the same codes and scales: nothing is rounded.",
    ),
    "inspect": Entry(
        "inspect:inspect",
        "Show what a model's folder, a GGUF file or a packed file holds: layers, formats, bytes, origin.",
    ),
    "push": Entry(
        "hub:push", "Push a compressed folder to the Hugging Face hub, in one commit, after its checksums are checked."
    ),
    "pull": Entry(
        "hub:pull",
        "Pull a compressed folder from the Hugging Face hub, and check its checksums before it gets its name.",
    ),
    "roofsurface": Entry(
        "roofsurface:roofsurface",
        "Show how fast a machine can multiply compressed weights, and whether memory, vector or matrix units bind it.",
        needs_lab=True,
    ),
    "reproduce": Entry(
        "reproduce:reproduce",
        "Run the papers' experiments and show each value that they print, ours, and the deviation.",
        needs_lab=True,
    ),
    "report": Entry(
        "report:report",
        "Make one HTML page of records: tables, plots, the papers' values beside ours, and an explorer to play with.",
        needs_lab=True,
    ),
    "sweep": Entry(
        "sweep:sweep",
        "Compute every point of a grid of recipes or designs, in several processes or on a Ray cluster.",
    ),
    "bench": Entry("bench:app", "Measure speed on this machine."),
    "simulate": Entry("simulate:app", "Simulate hardware.", needs_lab=True),
    "rtl": Entry("rtl:app", "Make hardware of the papers' units.", needs_lab=True),
}


def load(name: str) -> Any:
    """The subcommand itself, as typer makes it of its function or app."""
    entry = COMMANDS[name]
    module, _, attribute = entry.target.partition(":")
    source = getattr(import_module(f".{module}", __package__), attribute)
    parent = typer.Typer()
    if isinstance(source, typer.Typer):
        parent.add_typer(source, name=name)
    else:
        parent.command(name)(source)
    command = typer.main.get_group(parent).commands[name]
    if entry.needs_lab:
        _check_lab_first(command, name)
    return command


def _check_lab_first(command: Any, name: str) -> None:
    """In a command, or each one of a group, when it is run; its --help needs no extra."""
    for one in getattr(command, "commands", {name: command}).values():
        one.callback = partial(_run_in_lab, name, one.callback)


def _run_in_lab(name: str, callback: Any, /, **arguments: Any) -> Any:
    need_lab(f"`tilepress {name}`")
    return callback(**arguments)


RENAMED = {"--activations": "--acts", **dict.fromkeys(("--report", "--plot", "--page", "--timeline", "-o"), "--html")}


@contextmanager
def _hints() -> Iterator[None]:
    """The new name of an option, where an old one was typed. Which class the error has depends on typer's version."""
    try:
        yield
    except Exception as error:
        new, context = RENAMED.get(getattr(error, "option_name", "")), getattr(error, "ctx", None)
        if context and any(new in one.opts for one in context.command.params):
            error.possibilities = [new]  # type: ignore[attr-defined]
        raise


class _Interrupted(BaseException):
    """A KeyboardInterrupt, which typer would keep to itself."""


@contextmanager
def _interrupts() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise _Interrupted from error


class _Commands(TyperGroup):
    """Lists placeholders that have a name and a summary, and runs what they stand for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and load(str(name)), rest

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _interrupts():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _interrupts(), _hints():
            return super().invoke(ctx)


app = typer.Typer(
    name="tilepress",
    cls=_Commands,
    help="Make large language models small, and run them small.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _entry in COMMANDS.items():
    app.command(_name, help=_entry.summary)(lambda: None)


def _print_version(given: bool) -> None:
    if given:
        from .. import __version__

        print(f"tilepress {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make large language models small, and run them small."""


def run() -> None:
    """Run the command that was typed; errors come out as they are."""
    try:
        app()
    except _Interrupted as error:
        raise KeyboardInterrupt from error
