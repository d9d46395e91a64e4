"""Tilepress: make large language models small, and run them small."""

from importlib.metadata import version as _version

__version__ = _version("tilepress")
__all__ = ["__version__"]
