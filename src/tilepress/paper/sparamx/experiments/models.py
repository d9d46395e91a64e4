"""Whole models: figures 1, 3, 11, 12 and 13."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ...item import Ours, Track
from ...options import SUBJECT
from ...published import read_paper
from .settings import BOTH, FEW_LAYERS, FIGURE, GAIN, LLAMA, SPARSE, THEIRS, Decoding, core_text, joined, named, numbers

PAPER = read_paper("sparamx")
DECODING = Decoding()
BATCHED = Decoding(depth=64, written=4)
GROWTH = "largest over smallest model"
SIZES = f"smollm2-135m llama3.2-1b llama3.2-3b {LLAMA}"


def figure_1(
    track: Track, *, models: str = SIZES, weights: str = BOTH, decoding: Decoding = DECODING
) -> Iterator[Ours]:
    """Models from small to large, sparse over stock."""
    from .speed_study import RandomModel, kernel_note, stock, unit_note

    names, contestants = models.split(), weights.split()
    gains: dict[str, float] = {}
    for name in names:
        model = RandomModel.of(name, decoding.millions, decoding.depth + decoding.written)
        rates = model.race(track, name, [model.stock(), *map(model.packed, contestants)], decoding)
        yield Ours(f"{name}, {stock()}", "decoding", rates.decode[stock(), 1], "token/s", model.note)
        for contestant in contestants:
            note = joined(f"over {stock()}", model.note, kernel_note(contestant, model.config.hidden_size))
            yield Ours(f"{name}, {contestant}", GAIN, rates.gain(contestant, stock()), "x", note)
        gains[name] = rates.gain(contestants[0], stock())
    note = joined(contestants[0], unit_note())
    if LLAMA in gains:
        yield Ours(THEIRS, GAIN, gains[LLAMA], "x", joined("its shape, random weights", note))
    yield Ours("any model", GAIN, min(gains.values()), "x", joined("the least", note))
    yield Ours(GROWTH, GAIN, gains[names[-1]] / gains[names[0]], "x", note)


LINEAR, LESS = "share of linear layers", "share of linear layers, shortest context less longest"


def figure_3(
    track: Track, *, model: str = LLAMA, millions: int = 450, depths: str = "512 2048 8192", written: int = 6
) -> Iterator[Ours]:
    """Where the time of a step goes, in transformers."""
    import torch

    from ....bench.breakdown import decode_breakdown
    from ....bench.random_models import FilledWriter
    from .speed_study import RandomModel, stock

    lengths = numbers(depths)
    made = RandomModel.of(model, millions, max(lengths) + written + 1)
    writer, note = FilledWriter(made.dense), joined(stock(), made.note)
    shares, who = [], THEIRS if model == LLAMA else model
    for depth in track(lengths, "contexts"):
        time = decode_breakdown(made.dense, writer.past(torch.zeros(1, depth + 1)), written)
        row = f"{who}, {depth} tokens"
        shares.append(100 * time.linear / time.total)
        yield Ours(row, LINEAR, shares[-1], "%", note)
        yield Ours(row, "share of attention", 100 * time.attention / time.total, "%", note)
        yield Ours(row, "share of the rest", 100 * time.rest / time.total, "%", note)
        yield Ours(row, "step", 1e3 * time.total, "ms", note)
    yield Ours(who, LESS, shares[0] - shares[-1], "%")


SPARSEST, RISE = "least, of the sparsest", "sparsest over densest, least"
APART, FEWEST = "AMX and AVX apart", "fewest cores over most"
ANY = {kernels: f"{kernels}, any number of cores" for kernels in ("AMX", "AVX")}


def figure_11(
    track: Track,
    *,
    model: str = LLAMA,
    format: str = "bf16",
    sparsities: str = "30 50 70 90",
    cores: str = "",
    decoding: Decoding = DECODING,
) -> Iterator[Ours]:
    """Speed-up over stock torch by sparsity and number of cores."""
    from .speed_study import RandomModel, core_counts, kernel_sets, stock, unit_note

    made = RandomModel.of(model, decoding.millions, decoding.depth + decoding.written)
    levels, note = numbers(sparsities), joined(f"over {stock()}", made.note, unit_note())
    gains: dict[tuple[str, int, int], float] = {}
    for count in core_counts(cores):
        entrants = {
            (kernels, level): made.packed(f"{format}@{100 - level}%", isa, f"{kernels}, {level} %")
            for kernels, isa in kernel_sets().items()
            for level in levels
        }
        rates = made.race(track, core_text(count), [made.stock(), *entrants.values()], decoding, threads=count)
        for (kernels, level), entrant in entrants.items():
            row, ratio = named(model, f"{kernels}, {core_text(count)}"), rates.gain(entrant.name, stock())
            gains[kernels, count, level] = ratio
            yield Ours(row, f"{level} % zero", ratio, "x", note)
    yield from _by_sparsity(model, gains, levels, joined(f"of {', '.join(kernel_sets())}", unit_note()))


def _by_sparsity(
    model: str, gains: Mapping[tuple[str, int, int], float], levels: list[int], note: str
) -> Iterator[Ours]:
    """What the text says of the figure, of the kernels that there are."""
    counts, first, last = sorted({count for _, count, _ in gains}), levels[0], levels[-1]
    known = list(dict.fromkeys(kernels for kernels, _, _ in gains))
    for kernels in known:
        row = named(model, f"{kernels}, any number of cores")
        yield Ours(row, SPARSEST, min(gains[kernels, count, last] for count in counts), "x", note)
        rises = [gains[kernels, count, last] / gains[kernels, count, first] for count in counts]
        yield Ours(row, RISE, min(rises), "x", note)
    for kernels in ANY.keys() - set(known):
        absent = f"no {kernels} here; {', '.join(known)} it has"
        yield from (Ours(ANY[kernels], column, None, "x", absent) for column in (SPARSEST, RISE))
    if known != list(ANY) or len(counts) < 2:
        yield Ours(APART, FEWEST, None, "x", "it needs AMX, AVX, and more than one number of cores")
        return
    gaps = [abs(gains["AMX", count, first] / gains["AVX", count, first] - 1) for count in (counts[0], counts[-1])]
    yield Ours(named(model, APART), FEWEST, gaps[0] / gaps[1], "x", f"at {first} % zero")


OVER_STOCK, OVER_AVX = "sparse over stock", "AMX over AVX"


def figure_12(
    track: Track, *, model: str = LLAMA, weights: str = SPARSE, batches: str = "1 8 32", decoding: Decoding = BATCHED
) -> Iterator[Ours]:
    """Throughput by batch: stock, dense and sparse kernels, with the matrix unit and without."""
    from .speed_study import RandomModel, kernel_note, kernel_sets, stock, unit_note

    made, sizes = RandomModel.of(model, decoding.millions, decoding.depth + decoding.written), numbers(batches)
    entrants = [made.stock(), made.packed(weights.partition("@")[0], name="dense")]
    entrants += [made.packed(weights, isa, f"sparse, {kernels}") for kernels, isa in kernel_sets().items()]
    rates = made.race(track, "batches", entrants, decoding, batches=sizes)
    best, *slower = (entrant.name for entrant in entrants[2:])
    for batch in sizes:
        row, kernel = named(model, f"batch {batch}"), kernel_note(weights, made.config.hidden_size, batch)
        for entrant in entrants:
            yield Ours(row, entrant.name, rates.decode[entrant.name, batch], "token/s", made.note)
        yield Ours(row, OVER_STOCK, rates.gain(best, stock(), batch), "x", joined(f"over {stock()}", kernel))
        yield Ours(row, "dense over stock", rates.gain("dense", stock(), batch), "x")
        over = rates.gain(best, slower[0], batch) if slower else None
        yield Ours(row, OVER_AVX, over, "x", unit_note())


EIGHT_BITS = "llama.cpp Q8_0"
DEEPSPARSE = "DeepSparse is closed, retired, and not here"
HIGHEST, OVER_DENSE, OVER_LLAMA, OVER_DEEPSPARSE = (
    "highest batch", "sparse over dense", "sparse over llama.cpp", "sparse over DeepSparse"
)  # fmt: skip


def figure_13(
    track: Track,
    *,
    model: str = SUBJECT.model,
    sparse: str = "int8:row@50%+int8",
    dense: str = "int8:row+int8",
    batches: str = "1 8 32",
    written: int = 8,
    repeats: int = 2,
) -> Iterator[Ours]:
    """INT8 kernels by batch, after two tokens, on a model that llama.cpp has too."""
    from ....bench.model import Settings
    from .speed_study import kernel_note, race, unit_note

    sizes, contestants = numbers(batches), {"dense": dense, "sparse": sparse}
    entrants, config, refused = _int8_entrants(model, contestants)
    settings = Settings(prompt=2, tokens=written, repeats=repeats, batches=sizes)
    rates = race(track, "batches", entrants, settings, config.vocab_size)
    for name, batch in rates.decode:
        note = kernel_note(contestants[name], config.hidden_size, batch) if name in contestants else ""
        yield Ours(f"batch {batch}", name, rates.decode[name, batch], "token/s", note)
    for batch in sizes:
        yield Ours(f"batch {batch}", OVER_DENSE, rates.gain("sparse", "dense", batch), "x", unit_note())
    most = sizes[-1]
    yield Ours(HIGHEST, OVER_DENSE, rates.gain("sparse", "dense", most), "x", f"batch {most}")
    reason = {**refused, **rates.refused}.get(EIGHT_BITS)
    ratio = None if reason else rates.gain("sparse", EIGHT_BITS, most)
    yield Ours(HIGHEST, OVER_LLAMA, ratio, "x", reason or joined(f"batch {most}, {EIGHT_BITS}", unit_note()))
    yield from (
        Ours(one.row, one.column, None, "x", DEEPSPARSE)
        for one in PAPER.items["fig13"]
        if one.column == OVER_DEEPSPARSE
    )


def _int8_entrants(name: str, contestants: Mapping[str, str]) -> tuple[list[Any], Any, Mapping[str, str]]:
    """transformers, ours, and llama.cpp where it can be had; the configuration; peer → why it is not there."""
    from ....bench.linear import parse_contestant
    from ....bench.model import Entrant, TransformersWriter
    from ....bench.model_peers import peers
    from ....bench.random_models import packed_model
    from .speed_study import load_here, stock

    dense = load_here(name).model

    def load(text: str, threads: int) -> TransformersWriter:
        return TransformersWriter(packed_model(dense, parse_contestant(text), threads))

    entrants = [Entrant(stock(), 0, lambda _: TransformersWriter(dense))]
    entrants += [Entrant(name, 0, partial(load, text), is_peer=False) for name, text in contestants.items()]
    known, refused = peers(name)
    return [*entrants, *(one for one in known if one.name == EIGHT_BITS)], dense.config, refused


MODELS = (
    PAPER.item(
        "fig1",
        "decoding with models from small to large, 50 % zero",
        "measured here",
        figure_1,
        (FEW_LAYERS, FIGURE, "The text does not name the models; ours are shapes from 135M weights to 8B."),
        seconds=45,
    ),
    PAPER.item(
        "fig3",
        "where the time of a step goes",
        "measured here",
        figure_3,
        (FEW_LAYERS, FIGURE, "Stock transformers, as in the paper; contexts are random keys and values."),
        seconds=7,
    ),
    PAPER.item(
        "fig11",
        "speed-up over stock torch by sparsity and number of cores",
        "measured here",
        figure_11,
        (FEW_LAYERS, FIGURE),
        seconds=39,
    ),
    PAPER.item(
        "fig12",
        "throughput by batch: stock, dense and sparse",
        "measured here",
        figure_12,
        (FEW_LAYERS, FIGURE, "The text gives no context length; ours is 64 tokens unless told otherwise (depth=)."),
        seconds=27,
    ),
    PAPER.item(
        "fig13",
        "INT8 kernels by batch beside llama.cpp",
        "measured here",
        figure_13,
        (
            "The caption names Llama 3 7B, the text Llama 2 7B; ours is smollm2-135m with its own weights.",
            "Section 1 has up to 1.46 times DeepSparse, section 9 over 1.4 times at high batches.",
        ),
        seconds=32,
    ),
)  # fmt: skip
