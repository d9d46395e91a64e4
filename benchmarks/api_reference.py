"""Write docs/api.md: what every package of tilepress exports, with the first words of its docstring."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import tilepress

PAGE = Path(__file__).parents[1] / "docs/api.md"
HEAD = """# API reference

The public API is what the packages of `tilepress` list in `__all__`, and nothing else. Import these names from the
package: `from tilepress.tiles import pack`. The modules inside a package, and everything whose name begins with `_`,
may change without notice. `import tilepress` alone imports neither torch nor transformers. `tilepress.paper`,
`tilepress.report` and `tilepress.simulate` need the lab extra: `pip install 'tilepress[lab]'`.

`python benchmarks/api_reference.py` writes this page from docstrings, and a test fails when they drift.
"""
LONG = 80
SIMPLE = (bool, int, float, str, type(None))


def packages() -> list[ModuleType]:
    """Those that export something, the whole first; the command line is not for import."""
    names = [module.name for module in pkgutil.walk_packages(tilepress.__path__, "tilepress.") if module.ispkg]
    modules = [tilepress, *map(importlib.import_module, sorted(names))]
    return [one for one in modules if getattr(one, "__all__", None) and one.__name__ != "tilepress.cli"]


def reference() -> str:
    return "\n".join([HEAD, *(line for package in packages() for line in _package(package))])


def _package(package: ModuleType) -> Iterator[str]:
    yield from (f"## {package.__name__}", "", _summary(package), "")
    for name in sorted(package.__all__, key=lambda name: (name.lower(), name)):
        yield from _symbol(name, getattr(package, name))
    yield ""


def _symbol(name: str, symbol: Any) -> Iterator[str]:
    if inspect.isclass(symbol):
        yield _line(name, _signature(symbol) if is_dataclass(symbol) else "", _summary(symbol))
        yield from (f"  {line}" for line in _members(symbol))
    elif inspect.isfunction(inspect.unwrap(symbol)):
        yield _line(name, _signature(symbol), _summary(symbol))
    else:
        yield _line(name, "", _value(name, symbol))


def _members(symbol: type) -> Iterator[str]:
    """Methods and properties that the class itself has, with what they say of themselves."""
    for name, member in vars(symbol).items():
        function = member.fget if isinstance(member, property) else inspect.unwrap(getattr(member, "__func__", member))
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield _line(name, "" if isinstance(member, property) else _signature(function), _summary(function))


def _line(name: str, signature: str, summary: str) -> str:
    return f"- `{name}{signature}`: {summary}" if summary else f"- `{name}{signature}`"


def _signature(function: Any) -> str:
    """Names, and defaults where they are short; types are in the source."""
    parts, has_star = [], False
    for one in inspect.signature(function).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is Parameter.KEYWORD_ONLY and not has_star:
            parts.append("*")
        has_star |= one.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        parts.append(_parameter(one))
    return f"({', '.join(parts)})"


def _parameter(one: Parameter) -> str:
    stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
    if one.default is Parameter.empty:
        return stars + one.name
    return f"{one.name}={one.default!r}" if isinstance(one.default, SIMPLE) else f"{one.name}=…"


def _summary(symbol: Any) -> str:
    """The first paragraph of its own docstring, in one line."""
    text = inspect.cleandoc(symbol.__doc__ or "")
    if inspect.isclass(symbol) and is_dataclass(symbol) and text.startswith(f"{symbol.__name__}("):
        return ""  # what dataclass writes where nobody did
    return " ".join(text.partition("\n\n")[0].split())


def _value(name: str, symbol: Any) -> str:
    """Of a constant: itself where it is short."""
    if get_origin(symbol):
        return "A type."
    words = ", ".join(map(str, symbol)) if isinstance(symbol, tuple) else str(symbol)
    is_plain = isinstance(symbol, str | tuple) and not name.startswith("__")
    if len(words) > LONG or not is_plain:
        return f"A `{type(symbol).__name__}`."
    return f"`{words}`."


if __name__ == "__main__":
    PAGE.write_text(reference(), "utf-8")
