"""The `tilepress` command: its subcommands, and how failures reach the user."""

import sys
from typing import Annotated

import typer

from .. import __version__
from . import bench, compress, demo, doctor, eval, formats, generate, inspect, reproduce, roofsurface, search, simulate

app = typer.Typer(
    name="tilepress",
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


def main() -> None:
    """Run the command line. What the user can mend is one line on standard error and exit code 1, no traceback."""
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        print(f"tilepress: error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("tilepress: interrupted", file=sys.stderr)
        sys.exit(130)
