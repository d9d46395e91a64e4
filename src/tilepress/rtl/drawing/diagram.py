"""A module's diagram, and how deep it goes by itself."""

from .dot import dot_of
from .graph import Graph, graph_of
from .netlist import Modules, levels_with_state

MOST_BOXES = 32  # that read well, where a depth was not asked for


def diagram_of(modules: Modules, top: str, depth: int | None = None) -> tuple[Graph, str]:
    """Of the module `top`: the graph, and its DOT. `depth`: levels of submodules that are opened; if none, down to the
    last registers if there are at most MOST_BOXES boxes."""
    graph = _readable(modules, top) if depth is None else graph_of(modules, top, depth)
    return graph, dot_of(graph, top)


def _readable(modules: Modules, top: str) -> Graph:
    graph = graph_of(modules, top, 0)
    for depth in range(1, levels_with_state(modules, top) + 1):
        deeper = graph_of(modules, top, depth)
        if len(deeper.boxes) > MOST_BOXES:
            break
        graph = deeper
    return graph
