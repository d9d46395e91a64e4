"""What Anda's paper prints of accuracy and bit operations, with its place."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..compression.search import Products
from ..simulate.layers import find_transformer
from .item import Published

MODELS = (
    "OPT-1.3B", "OPT-2.7B", "OPT-6.7B", "LLaMA-7B", "LLaMA2-7B", "OPT-13B", "LLaMA-13B", "LLaMA2-13B", "OPT-30B",
)  # fmt: skip
REFERENCE = "Omniquant"  # W4A16 in groups of 128, which losses are relative to

# Text → method → perplexities, in the order of MODELS.
PERPLEXITY: dict[str, dict[str, tuple[float, ...]]] = {
    "WikiText2": {
        "FP16": (14.62, 12.47, 10.86, 5.68, 5.47, 10.13, 5.09, 4.88, 9.56),
        "Omniquant": (14.88, 12.65, 10.96, 5.77, 5.59, 10.20, 5.17, 4.95, 9.62),
        "FIGNA": (14.90, 12.65, 10.96, 5.78, 5.60, 10.22, 5.18, 4.96, 9.61),
        "VS-Quant": (19.04, 16.41, 12.24, 7.45, 8.26, 11.63, 6.36, 6.43, 10.67),
        "Anda 0.1 %": (14.91, 12.66, 10.95, 5.78, 5.60, 10.21, 5.18, 4.96, 9.60),
        "Anda 1 %": (14.99, 12.76, 10.99, 5.82, 5.65, 10.30, 5.23, 5.00, 9.71),
    },
    "PTB": {
        "FP16": (16.96, 15.12, 13.09, 8.80, 20.82, 12.34, 8.07, 28.93, 11.84),
        "Omniquant": (17.40, 15.28, 13.25, 8.97, 21.52, 12.46, 8.14, 30.19, 11.94),
        "FIGNA": (17.41, 15.28, 13.26, 8.98, 21.52, 12.47, 8.15, 30.19, 11.95),
        "VS-Quant": (25.64, 21.09, 15.50, 15.78, 53.46, 14.47, 12.54, 49.91, 13.47),
        "Anda 0.1 %": (17.41, 15.29, 13.26, 8.98, 21.48, 12.47, 8.15, 30.18, 11.96),
        "Anda 1 %": (17.57, 15.42, 13.35, 9.05, 21.61, 12.58, 8.22, 30.41, 12.03),
    },
    "C4": {
        "FP16": (14.72, 13.16, 11.74, 7.08, 6.97, 11.20, 6.61, 6.47, 10.69),
        "Omniquant": (15.03, 13.38, 11.85, 7.21, 7.12, 11.29, 6.69, 6.56, 10.75),
        "FIGNA": (15.04, 13.38, 11.86, 7.22, 7.12, 11.29, 6.70, 6.57, 10.75),
        "VS-Quant": (19.00, 16.65, 13.13, 8.89, 10.36, 12.64, 7.85, 8.35, 11.91),
        "Anda 0.1 %": (15.05, 13.40, 11.87, 7.22, 7.13, 11.30, 6.70, 6.57, 10.76),
        "Anda 1 %": (15.17, 13.51, 11.97, 7.28, 7.19, 11.37, 6.74, 6.62, 10.85),
    },
}
# Per cent of perplexity lost; the paper writes them as accuracy, with the opposite sign.
LOSS: dict[str, dict[str, tuple[float, ...]]] = {
    "WikiText2": {
        "FIGNA": (0.13, 0.00, 0.00, 0.17, 0.18, 0.20, 0.19, 0.20, -0.10),
        "VS-Quant": (27.96, 22.91, 11.68, 29.12, 47.76, 13.98, 23.02, 29.90, 10.91),
        "Anda 0.1 %": (0.20, 0.07, -0.09, 0.17, 0.18, 0.10, 0.19, 0.20, -0.20),
        "Anda 1 %": (0.74, 0.86, 0.27, 0.87, 1.07, 0.98, 1.16, 1.01, 0.94),
    },
    "PTB": {
        "FIGNA": (0.06, 0.00, 0.08, 0.11, 0.00, 0.08, 0.12, 0.00, 0.08),
        "VS-Quant": (47.36, 27.55, 16.98, 75.92, 148.42, 16.13, 54.05, 65.32, 12.81),
        "Anda 0.1 %": (0.06, 0.07, 0.08, 0.11, -0.20, 0.08, 0.12, -0.03, 0.17),
        "Anda 1 %": (0.98, 0.91, 0.75, 0.89, 0.42, 0.96, 0.98, 0.73, 0.75),
    },
    "C4": {
        "FIGNA": (0.07, 0.00, 0.08, 0.14, 0.00, 0.00, 0.15, 0.15, 0.00),
        "VS-Quant": (26.41, 19.64, 10.80, 23.30, 45.51, 11.96, 17.34, 27.29, 10.79),
        "Anda 0.1 %": (0.13, 0.15, 0.17, 0.14, 0.14, 0.09, 0.15, 0.15, 0.09),
        "Anda 1 %": (0.93, 0.96, 1.01, 0.97, 0.98, 0.71, 0.75, 0.91, 0.93),
    },
}
SAVING: dict[str, dict[str, tuple[float, ...]]] = {
    "WikiText2": {
        "Anda 0.1 %": (2.74, 2.91, 3.10, 1.99, 1.96, 2.86, 1.88, 1.80, 3.10),
        "Anda 1 %": (2.95, 3.25, 3.31, 2.56, 2.56, 3.20, 2.59, 2.44, 3.31),
    },
    "PTB": {
        "Anda 0.1 %": (1.64, 2.13, 2.23, 2.21, 2.19, 1.84, 2.35, 2.84, 2.23),
        "Anda 1 %": (2.31, 2.70, 2.86, 2.54, 2.39, 2.67, 2.67, 2.92, 2.86),
    },
    "C4": {
        "Anda 0.1 %": (1.86, 2.11, 2.23, 2.16, 2.04, 2.23, 2.16, 2.14, 2.31),
        "Anda 1 %": (2.43, 2.86, 3.05, 2.70, 2.67, 2.86, 2.70, 2.70, 3.09),
    },
}
FIGNA_SAVING, VS_QUANT_SAVING = 1.23, 4.00


@dataclass(frozen=True)
class Cell:
    """One cell of Table II."""

    text: str
    model: str
    method: str

    @property
    def row(self) -> str:
        return f"{self.model}, {self.text}, {self.method}"

    def of(self, table: dict[str, dict[str, tuple[float, ...]]]) -> float | None:
        values = table[self.text].get(self.method)
        return None if values is None else values[MODELS.index(self.model)]


def cells() -> Iterator[Cell]:
    return (Cell(text, model, method) for text, methods in PERPLEXITY.items() for method in methods for model in MODELS)


def products_of(model: str) -> Products:
    """Products that the four tensor types take part in, for each number of the hidden states."""
    found = find_transformer(model)
    qkv, o, u, d = (count // found.hidden for count in found.products)
    return qkv, o, u, d


def saving_of(cell: Cell) -> float | None:
    fixed = {"FIGNA": FIGNA_SAVING, "VS-Quant": VS_QUANT_SAVING, REFERENCE: 1.0}
    return fixed.get(cell.method) or (cell.of(SAVING) if cell.method in SAVING[cell.text] else None)


def table2() -> Iterator[Published]:
    """All that Table II prints."""
    for cell in cells():
        perplexity, loss = cell.of(PERPLEXITY), cell.of(LOSS)
        assert perplexity is not None
        yield Published(cell.row, "perplexity", perplexity, "", "Table II")
        if loss is not None:
            yield Published(cell.row, "loss", loss, "%", "Table II", within=0.1)
        if (saving := saving_of(cell)) is not None:
            yield Published(cell.row, "BOP saving", saving, "x", "Table II", within=0.005)
