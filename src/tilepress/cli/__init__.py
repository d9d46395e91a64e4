"""The command line: one file a subcommand, parsing and printing only."""

from .app import main

__all__ = ["main"]
