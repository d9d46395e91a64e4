"""A graph as Graphviz takes it."""

from collections.abc import Iterator
from html import escape

from .contents import operators_text
from .elements import BITS, Key
from .graph import Arrow, Box, Graph
from .netlist import Place

FONT = "Helvetica,Arial,sans-serif"
LISTED = 3  # names on an arrow, or of single bits
WORDS = "penwidth=1.3"
CHOICES = 'style=dashed color="#777777" fontcolor="#555555"'
BITS_BACK = f"{CHOICES} constraint=false"  # boxes are in the order of words
SHAPES = {
    "input": 'shape=box style=filled fillcolor="#ffffff" color="#888888"',
    "output": 'shape=box style=filled fillcolor="#ffffff" color="#888888"',
    "register": 'shape=box style=filled fillcolor="#cfe2ff" penwidth=1.6',
    "memory": 'shape=cylinder style=filled fillcolor="#fff0c2"',
    "wire": 'shape=box style="filled,rounded" fillcolor="#dff3df"',
    "part": 'shape=box3d style=filled fillcolor="#ececec"',
}
HEAD = f"""  graph [bgcolor=white pad=0.15 nodesep=0.25 ranksep=0.45 newrank=true fontname="{FONT}" fontsize=12]
  node [fontname="{FONT}" fontsize=12 height=0.3 margin="0.14,0.08"]
  edge [fontname="{FONT}" fontsize=9 arrowsize=0.6 color="#333333"]
"""


def dot_of(graph: Graph, title: str) -> str:
    """In an order that depends on names alone."""
    names = {key: f"n{number}" for number, key in enumerate(sorted(graph.boxes))}
    lines = [f'digraph "{title}" {{', HEAD.rstrip("\n")]
    lines += _boxes(graph, names, ())
    for (begin, end), arrow in sorted(graph.arrows.items(), key=lambda one: one[0]):
        lines.append(f"  {names[begin]} -> {names[end]} [{_arrow(graph, begin, end, arrow)}]")
    return "\n".join([*lines, "}"]) + "\n"


def _boxes(graph: Graph, names: dict[Key, str], place: Place) -> Iterator[str]:
    indent = "  " * (len(place) + 1)
    for key, name in names.items():
        if key.place == place:
            yield f"{indent}{name} [{SHAPES[key.kind]} label=<{_label(key, graph.boxes[key])}>]"
    for inner, family in sorted(graph.clusters.items(), key=lambda one: one[0]):
        if inner[:-1] == place:
            label = _times(family.label, family.size)
            yield f'{indent}subgraph "cluster_{".".join(inner)}" {{'
            yield f'{indent}  graph [label="{label}" style=rounded color="#888888" labeljust=l]'
            yield from _boxes(graph, names, inner)
            yield f"{indent}}}"


def _label(key: Key, box: Box) -> str:
    labels = [_times(_dotted(name), box.size) for name in sorted(box.labels)]
    name = ", ".join(_cut(labels))
    operators = operators_text(box.operators) if key.kind != "part" else ""
    small = [*box.detail.split("\n"), operators, f"steers {box.steers} boxes" if box.steers else ""]
    lines = [f"<B>{escape(name)}</B>"] if name else []
    lines += [f'<FONT POINT-SIZE="9">{escape(line)}</FONT>' for line in small if line]
    return "<BR/>".join(lines)


def _dotted(name: str) -> str:
    """request.address for request__payload.address."""
    return name.replace("__payload", "").replace("__", ".")


def _times(label: str, size: int) -> str:
    return f"{label} × {size}" if size > 1 else label


def _cut(names: list[str]) -> list[str]:
    return [*names[:LISTED], "…"] if len(names) > LISTED else names


def _arrow(graph: Graph, begin: Key, end: Key, arrow: Arrow) -> str:
    are_bits = all(bits == 1 for bits, _ in arrow.choices.values())
    leads_back = are_bits and begin.kind != "input" and end.kind != "output"  # maybe
    style = WORDS if arrow.words else BITS_BACK if leads_back else CHOICES
    text = "\\n".join(_cut(_ports(graph, begin, end, arrow)))
    return f'{style} label="{text}"' if text else style


def _ports(graph: Graph, begin: Key, end: Key, arrow: Arrow) -> list[str]:
    """Of submodules and single bits that an arrow joins, wide ones first; boxes say the names and widths of others."""
    side = next((side for side, key in enumerate((begin, end)) if key.kind == "part" or key.name == BITS), None)
    if side is None:
        return []
    said = ["", *(graph.boxes[key].labels[0] for key in (begin, end) if len(graph.boxes[key].labels) == 1)]
    named = {(both[side].partition("__")[0], bits[side]) for both, bits in (arrow.words or arrow.choices).items()}
    wide_first = sorted((one for one in named if one[0] not in said), key=lambda one: (-one[1], one[0]))
    return [f"{name} {bits}" if bits > 1 and arrow.words else name for name, bits in wide_first]
