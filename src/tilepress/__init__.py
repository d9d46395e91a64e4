"""Tilepress: make large language models small, and run them small.

`import tilepress` is light: it imports neither torch nor transformers. It makes sure that transformers, whenever it is
imported, can load the folders that `tilepress compress` writes.
"""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._after_import import after_import as _after_import

if _TYPE_CHECKING:
    from .engine import Engine, Sampling, Stream
    from .models import compress_model as compress
    from .nn.model_kv_cache import kv_cache, load_kv_cache

    __version__: str

__all__ = ["Engine", "Sampling", "Stream", "__version__", "compress", "kv_cache", "load_kv_cache"]

# Imported when first used: module, and the name there.
_LAZY = {
    "Engine": ("tilepress.engine", "Engine"),
    "Sampling": ("tilepress.engine", "Sampling"),
    "Stream": ("tilepress.engine", "Stream"),
    "compress": ("tilepress.models", "compress_model"),
    "kv_cache": ("tilepress.nn.model_kv_cache", "kv_cache"),
    "load_kv_cache": ("tilepress.nn.model_kv_cache", "load_kv_cache"),
}


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        return _import_module("importlib.metadata").version("tilepress")
    if name not in _LAZY:
        raise AttributeError(f"module 'tilepress' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(_import_module(module), attribute)


def _register(_: _ModuleType) -> None:
    _import_module("tilepress.models.hooks").once_packed.append(_generate_in_engine)
    _import_module("tilepress.models.registration")


def _generate_in_engine(model: _Any) -> None:
    _import_module("tilepress.engine.generating").generate_in_engine(model)


_after_import("transformers.quantizers.auto", _register)
