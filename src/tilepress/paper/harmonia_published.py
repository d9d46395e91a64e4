"""What Harmonia's paper prints of accuracy and storage, with its place."""

from .item import Published, published_table

MODELS = ("Llama-7B", "Llama-13B", "Llama-2-7B", "Llama-2-13B", "OPT-6.7B")

# Method → perplexity on WikiText2, in the order of MODELS.
TABLE1: dict[str, tuple[float, ...]] = {
    "Full": (5.68, 5.09, 5.47, 4.88, 10.86),
    "Omniquant": (5.77, 5.17, 5.59, 4.95, 10.96),
    "Tender": (5.87, 5.28, 5.77, 5.09, 10.93),
    "M-ANT": (5.79, 5.20, 5.57, 4.96, 10.98),
    "FIGNA": (5.78, 5.18, 5.60, 4.96, 10.96),
    "Anda-m4": (7.45, 6.36, 8.26, 6.43, 12.30),
    "Anda-m6": (5.86, 5.26, 5.70, 5.06, 11.01),
    "Anda-m8": (5.79, 5.19, 5.60, 4.97, 10.96),
    "Harmonia, KV BFP8": (5.78, 5.18, 5.59, 4.96, 10.96),
    "Harmonia, KV BFP4": (6.19, 5.51, 5.90, 5.20, 11.69),
}

# LongBench, 4K of context: model → averages of nine tasks.
TABLE2_METHODS = ("Full", "Omniquant", "KIVI-q", "Harmonia-Naïve", "Harmonia")
TABLE2: dict[str, tuple[float, ...]] = {
    "Llama-3.2-1B-Instruct": (38.59, 36.59, 31.68, 23.39, 35.38),
    "Llama-3.2-3B-Instruct": (45.28, 44.07, 41.98, 38.97, 44.11),
    "Mistral-7B-Instruct-v0.3": (45.97, 44.92, 41.80, 43.80, 44.47),
    "Llama-3.1-8B-Instruct": (47.52, 46.35, 42.20, 41.23, 46.74),
    "Llama-2-13B-chat": (35.95, 35.41, 28.72, 29.42, 34.95),
}


def table1() -> list[Published]:
    return published_table("Table I", "", [f"{one}, perplexity" for one in MODELS], TABLE1)
