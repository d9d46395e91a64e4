"""Constants of a simulator: numbers that a module assigns, gives as a default or takes from a description in YAML."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Constant:
    """A number as it is written, on one line of a file; `name` says what it belongs to."""

    path: Path
    name: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}:{self.column + 1} {self.name} {self.text} -> {self.changed}"

    @property
    def changed(self) -> str:
        """One more of a small whole number, a tenth more of any other, and something where there was nothing."""
        value = ast.literal_eval(self.text.replace("+", "")) if "e" not in self.text else float(self.text)
        if isinstance(value, int):
            return str(value + 1 if abs(value) < 10 else round(1.1 * value))
        return repr(1.1 * value or 1.0) if "e" not in self.text else f"{1.1 * value:e}"

    def mutated(self) -> str:
        """The file with this number changed."""
        lines = self.path.read_text("utf-8").splitlines(keepends=True)
        line = lines[self.line - 1].encode()
        before, after = line[: self.column], line[self.column + len(self.text) :]
        lines[self.line - 1] = (before + self.changed.encode() + after).decode()
        return "".join(lines)


def constants(path: Path) -> list[Constant]:
    """Of a Python file or a YAML file, in their order."""
    found = _of_yaml(path) if path.suffix == ".yaml" else _of_python(path)
    return sorted(found, key=lambda one: (one.line, one.column))


def _of_python(path: Path) -> Iterator[Constant]:
    """Module constants, fields of classes and defaults of parameters; numbers within functions are algorithm."""
    source = path.read_text("utf-8")
    for name, value in _values(ast.parse(source).body):
        for entry, part in _entries(name, value):
            for node in ast.walk(part):
                if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                    text = ast.get_source_segment(source, node)
                    yield Constant(path, entry, node.lineno, node.col_offset, text)


def _entries(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Values of a dictionary by their keys, which are not changed; anything else whole."""
    if not isinstance(value, ast.Dict):
        yield name, value
        return
    for key, one in zip(value.keys, value.values, strict=True):
        yield f"{name}[{ast.unparse(key)}]" if key else name, one


def _values(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target), node.value
        elif isinstance(node, ast.FunctionDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    yield f"{node.name}()", default
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{name}", value) for name, value in _values(node.body))


def _of_yaml(path: Path) -> Iterator[Constant]:
    yield from _of_node(path, "", yaml.compose(path.read_text("utf-8")))


def _of_node(path: Path, name: str, node: yaml.Node) -> Iterator[Constant]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value != "sources":
                yield from _of_node(path, f"{name}.{key.value}".lstrip("."), value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _of_node(path, name, value)
    elif node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
        yield Constant(path, name, node.start_mark.line + 1, node.start_mark.column, node.value)
