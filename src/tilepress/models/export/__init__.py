"""A compressed model out again, in files that other tools read, with the codes and scales that it has."""

from .errors import ExportError
from .exporting import TARGETS, Exported, export_folder

__all__ = ["TARGETS", "ExportError", "Exported", "export_folder"]
