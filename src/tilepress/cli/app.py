"""The `tilepress` command: its subcommands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from . import (
    bench,
    compress,
    demo,
    doctor,
    eval,
    formats,
    generate,
    inspect,
    report,
    reproduce,
    roofsurface,
    search,
    simulate,
)  # fmt: skip


class _Interrupted(BaseException):
    """A KeyboardInterrupt, which typer would keep to itself."""


@contextmanager
def _interrupts() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise _Interrupted from error


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _interrupts():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _interrupts():
            return super().invoke(ctx)


app = typer.Typer(
    name="tilepress",
    cls=_Commands,
    help="Make large language models small, and run them small.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo.demo)
app.command()(compress.compress)
app.command()(generate.generate)
app.command()(search.search)
app.command()(doctor.doctor)
app.command("eval")(eval.evaluate)
app.command()(formats.formats)
app.command()(inspect.inspect)
app.command()(roofsurface.roofsurface)
app.command()(reproduce.reproduce)
app.command()(report.report)
app.add_typer(bench.app, name="bench")
app.add_typer(simulate.app, name="simulate")


def _print_version(wanted: bool) -> None:
    if wanted:
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
