"""Tilepress: make large language models small, and run them small.

`import tilepress` is light: it imports neither torch nor transformers. It sees to it that transformers, whenever that
is imported, can load the folders that `tilepress compress` writes, and that `tilepress.compress`, which is a package,
can also be called: `tilepress.compress(model, recipe)`.
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from types import ModuleType as _ModuleType
from typing import Any as _Any

from ._after_import import after_import as _after_import

__version__ = _version("tilepress")
__all__ = ["__version__", "compress", "kv_cache", "load_kv_cache"]


class _CallablePackage(_ModuleType):
    def __call__(self, *arguments: _Any, **options: _Any) -> _Any:
        """`tilepress.models.compress_model`."""
        return _import_module("tilepress.models").compress_model(*arguments, **options)


def _make_callable(package: _ModuleType) -> None:
    package.__class__ = _CallablePackage


def _register(_: _ModuleType) -> None:
    _import_module("tilepress.models.registration")


def __getattr__(name: str) -> _Any:
    if name == "compress":
        return _import_module("tilepress.compress")
    if name in ("kv_cache", "load_kv_cache"):
        return getattr(_import_module("tilepress.nn.kv_cache"), name)
    raise AttributeError(f"module 'tilepress' has no attribute {name!r}")


_after_import("tilepress.compress", _make_callable)
_after_import("transformers.quantizers.auto", _register)
