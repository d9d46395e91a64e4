"""Shapes of linear layers to measure: written NEURONSxINPUTS, or all those of a model by its name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

# Layer, output neurons, inputs. Llama-3-8B: SparAMX, table 2, which writes inputs × neurons.
MODELS: dict[str, list[tuple[str, int, int]]] = {
    "llama3-8b": [
        ("q_proj", 4096, 4096),
        ("k_proj", 1024, 4096),
        ("v_proj", 1024, 4096),
        ("o_proj", 4096, 4096),
        ("gate_proj", 14336, 4096),
        ("up_proj", 14336, 4096),
        ("down_proj", 4096, 14336),
    ],
    "smollm2": [
        ("q_proj", 576, 576),
        ("k_proj", 192, 576),
        ("v_proj", 192, 576),
        ("o_proj", 576, 576),
        ("gate_proj", 1536, 576),
        ("up_proj", 1536, 576),
        ("down_proj", 576, 1536),
        ("lm_head", 49152, 576),
    ],
    "llama2-70b-fc": [("fc", 28672, 8192)],
}


@dataclass(frozen=True)
class Shape:
    """A weight matrix [neurons, inputs], and the layers that have it."""

    neurons: int
    inputs: int
    layers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.neurons}x{self.inputs}"

    @property
    def title(self) -> str:
        return f"{self} ({', '.join(self.layers)})" if self.layers else str(self)


def parse_shapes(texts: Iterable[str]) -> list[Shape]:
    """The distinct shapes that `texts` name, in their order, each with the layers that have it."""
    shapes: dict[str, Shape] = {}
    for shape in (shape for text in texts for shape in _shapes(text)):
        known = shapes.get(str(shape), shape)
        layers = dict.fromkeys((*known.layers, *shape.layers))
        shapes[str(shape)] = replace(shape, layers=tuple(layers))
    return list(shapes.values())


def _shapes(text: str) -> list[Shape]:
    name = text.strip().lower()
    if name in MODELS:
        return [Shape(neurons, inputs, (f"{name} {layer}",)) for layer, neurons, inputs in MODELS[name]]
    sides = re.fullmatch(r"0*([1-9]\d{0,6})[x×]0*([1-9]\d{0,6})", name)
    if sides is None:
        raise ValueError(f"{text!r} is no shape; write NEURONSxINPUTS, 4096x4096 say, or one of {', '.join(MODELS)}")
    return [Shape(int(sides[1]), int(sides[2]))]
