"""The boxes and arrows of a drawing: what holds or makes words, and what feeds what."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .elements import Element, Key, elements_of
from .logic import Cone, Logic
from .naming import Family, Places
from .netlist import Modules, Place, flattened
from .wires import WIRE, wires_of

MOST_STEERED = 3
Ports = dict[tuple[str, str], tuple[int, int]]  # ports at an arrow's begin and at its end → bits of each


@dataclass
class Box:
    """`labels`: one, or those of single bits. `operators`: on the way into it. `steers`: in how many boxes it
    chooses, if they are too many for arrows."""

    labels: list[str]
    size: int
    detail: str
    operators: Counter[str] = field(default_factory=Counter)
    steers: int = 0


@dataclass
class Arrow:
    """Of `words`, and of what is one bit or only says of which words others are made."""

    words: Ports = field(default_factory=dict)
    choices: Ports = field(default_factory=dict)


@dataclass
class Graph:
    """`clusters`: the opened submodules, by the place at which they are drawn."""

    boxes: dict[Key, Box] = field(default_factory=dict)
    arrows: dict[tuple[Key, Key], Arrow] = field(default_factory=lambda: defaultdict(Arrow))
    clusters: dict[Place, Family] = field(default_factory=dict)


def graph_of(modules: Modules, top: str, depth: int) -> Graph:
    """Of the module `top` with its submodules opened `depth` levels down."""
    netlist = flattened(modules, top, depth)
    places, logic = Places(netlist.instances), Logic(netlist.cells)
    elements = list(elements_of(netlist, places, modules))
    elements += wires_of(netlist, places, logic, _sources(elements).keys())
    graph, sources = Graph(), _sources(elements)
    for element in elements:
        _add(graph, element)
        for port, nets in (*element.inputs.items(), *element.enables.items()):
            cone = logic.cone(nets, sources, nets if element.key.kind == WIRE else ())
            _connect(graph, element, port, len(nets), cone, sources)
    _drop_control(graph)
    drawn = {key.place[: level + 1] for key in graph.boxes for level in range(len(key.place))}
    graph.clusters |= {place: places.family(place) for place in drawn}
    return graph


def _drop_control(graph: Graph) -> None:
    """Arrows of what chooses in many boxes."""
    choosing = {ends for ends, arrow in graph.arrows.items() if not arrow.words}
    for key, count in Counter(begin for begin, _ in choosing).items():
        if count > MOST_STEERED:
            graph.boxes[key].steers = count
            for ends in [ends for ends in choosing if ends[0] == key]:
                del graph.arrows[ends]


Sources = dict[int, tuple[Key, str, int]]  # net → box, port, bits of the port


def _sources(elements: Iterable[Element]) -> Sources:
    return {
        net: (element.key, port, len(nets))
        for element in elements
        for port, nets in element.outputs.items()
        for net in nets
        if net
    }


def _add(graph: Graph, element: Element) -> None:
    box = graph.boxes.setdefault(element.key, Box([], element.size, element.detail))
    if element.label and element.label not in box.labels:
        box.labels.append(element.label)


def _connect(graph: Graph, element: Element, port: str, width: int, cone: Cone, sources: Sources) -> None:
    if element.counts and port in element.inputs:
        graph.boxes[element.key].operators += cone.operators
    for nets, is_word in ((cone.words, port in element.inputs and width > 1), (cone.choices, False)):
        for key, begin, bits in sorted({sources[net] for net in nets if net in sources}):
            if key != element.key:
                arrow = graph.arrows[key, element.key]
                (arrow.words if is_word and bits > 1 else arrow.choices)[begin, port] = bits, width
