"""Linear layers alone: the format, Table 1, Table 2 and figure 16."""

from collections.abc import Iterator

from ...item import Ours, Track
from ...published import read_paper
from .settings import BOTH, GAIN, SPARSE, core_text, joined, named

PAPER = read_paper("sparamx")
REGISTER = 512  # bits
DENSITIES = (90, 70, 50, 30, 10)


def sparse_format(track: Track) -> Iterator[Ours]:
    """What a sparse matrix takes as we pack it."""
    import torch

    from ....tiles import pack
    from ....tiles.layout import BLOCK_NEURONS, VECTOR_BYTES

    for name, bits in (("BF16", 16), ("INT8", 8)):
        elements = 8 * VECTOR_BYTES // bits
        yield Ours(f"{name}, row of a tile", "elements", elements)
        yield Ours(f"{name}, tile", "rows", BLOCK_NEURONS)
        yield Ours(f"{name}, tile", "elements", BLOCK_NEURONS * elements)
        yield Ours(f"{name}, tile", "bits of metadata", BLOCK_NEURONS * elements, "bit")
        yield Ours(f"{name}, tile", "registers of metadata", BLOCK_NEURONS * elements // REGISTER)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(512, 512, generator=generator)
    masks = {percent: torch.rand(weight.shape, generator=generator) < percent / 100 for percent in (0, *DENSITIES, 100)}
    packed = {percent: pack(weight, "bf16", mask=mask) for percent, mask in masks.items()}
    sizes = {percent: 8 * (one.streams["mask"].nbytes + one.codes.nbytes) for percent, one in packed.items()}
    yield Ours("zero weight", "bits", sizes[0] / weight.numel(), "bit")
    yield Ours("other weight", "bits", sizes[100] / weight.numel(), "bit")
    for percent in DENSITIES:
        yield Ours("BF16, times smaller", f"{100 - percent} % zero", packed[percent].compression_factor, "x")


BOUND, DRAM, SHARE, TIME = "Memory Bound", "DRAM Bound", "share of read bandwidth", "time of a layer"
APART = f"{SHARE}, above the sparse kernel's"


def table_1(
    track: Track,
    *,
    neurons: int = 14336,
    inputs: int = 4192,
    dense: str = "bf16",
    sparse: str = SPARSE,
    seconds: float = 1.0,
) -> Iterator[Ours]:
    """How much of the time waits for memory, dense and sparse."""
    from ....bench.counters import counters_refusal, waiting
    from ....bench.linear import Settings, parse_contestant
    from ....bench.model_peers import best_dtype
    from ....bench.shapes import Shape
    from .speed_study import time_layers, unit_note

    shape, names = Shape(neurons, inputs), {"Dense": dense, "Sparse": sparse}
    settings = Settings(dtype=best_dtype(), seconds=seconds, peers=False)
    (result,) = time_layers(track, "layers", [shape], list(names.values()), settings)
    shares = {row: 100 * one.share_of_bandwidth for row, one in zip(names, result.timings, strict=True)}
    for row, timing in zip(names, result.timings, strict=True):
        note = joined(timing.kernel, unit_note())
        yield Ours(row, SHARE, shares[row], "%", note)
        yield Ours(row, TIME, 1e3 * timing.seconds, "ms", note)
    yield Ours("Dense", APART, shares["Dense"] - shares["Sparse"], "%", unit_note())
    refusal = counters_refusal()
    if refusal is not None:
        note = f"{refusal}; the share of the read bandwidth stands in for it"
        yield from (Ours(row, column, None, "%", note) for row in names for column in (BOUND, DRAM))
        return
    contestants = [parse_contestant(text) for text in names.values()]
    for row, slots in zip(names, waiting(shape, contestants, settings, seconds), strict=True):
        yield Ours(row, BOUND, 100 * slots.memory, "%", "counters")
        yield Ours(row, DRAM, 100 * slots.dram, "%", "counters")


def table_2(track: Track, *, model: str = "llama3-8b", weights: str = BOTH, seconds: float = 0.5) -> Iterator[Ours]:
    """Every projection of a layer beside torch's."""
    from ....bench.linear import Settings
    from ....bench.model_peers import best_dtype
    from ....bench.shapes import parse_shapes
    from .speed_study import stock, time_layers, unit_note

    contestants = weights.split()
    settings = Settings(dtype=best_dtype(), seconds=seconds, among=[stock()])
    ratios = []
    for result in time_layers(track, "projections", parse_shapes([model]), contestants, settings):
        for contestant, timing in zip(contestants, result.timings, strict=False):
            ratio, note = result.over(timing)[stock()], joined(f"over {stock()}", timing.kernel, unit_note())
            ratios += [ratio] if contestant == contestants[0] else []
            for name in (layer.split()[-1] for layer in result.shape.layers):
                row = name if contestant == contestants[0] else f"{name}, {contestant}"
                yield Ours(named(model, row), GAIN, ratio, "x", note)
    yield Ours(
        named(model, "any projection"), GAIN, min(ratios), "x", joined(f"the least, of {contestants[0]}", unit_note())
    )


GROUPS, OVER, MOST = "more column groups over one", "AVX over AMX", "most, of all numbers of cores"
ONE_SHAPE = "our vector kernels have one shape: 16 neurons at a time, with several sums for each"


def figure_16(
    track: Track,
    *,
    neurons: int = 14336,
    inputs: int = 4096,
    weights: str = SPARSE,
    cores: str = "",
    seconds: float = 0.5,
) -> Iterator[Ours]:
    """A layer by number of cores, with the vector and the matrix unit."""
    from ....bench.linear import Settings, Timing
    from ....bench.model_peers import best_dtype
    from ....bench.shapes import Shape
    from ....kernels import forced_isa
    from .speed_study import core_counts, kernel_sets, time_layers, unit_note

    shape, counts, sets = Shape(neurons, inputs), core_counts(cores), kernel_sets()
    timings: dict[tuple[str, int], Timing] = {}
    for count in counts:
        settings = Settings(dtype=best_dtype(), seconds=seconds, threads=count, peers=False)
        for name, isa in sets.items():
            with forced_isa(isa):
                (result,) = time_layers(track, f"{name}, {core_text(count)}", [shape], [weights], settings)
            timings[name, count] = result.timings[0]
    slowest = timings[list(sets)[-1], counts[0]].seconds
    for (name, count), timing in timings.items():
        yield Ours(name, core_text(count), slowest / timing.seconds, "x", joined(timing.kernel, unit_note()))
    yield Ours(GROUPS, GAIN, None, "x", ONE_SHAPE)
    over = [timings["AMX", count].seconds / timings["AVX", count].seconds for count in counts] if len(sets) > 1 else []
    yield Ours(OVER, MOST, max(over, default=None), "x", unit_note())


LAYERS = (
    PAPER.item(
        "format",
        "the sparse format: tiles, metadata and bits",
        "exact",
        sparse_format,
        ("Ours is stored alike; in the place of a start for each thread it has an offset for each 16 neurons.",),
    ),
    PAPER.item(
        "table1",
        "slots that wait for memory, dense and sparse",
        "measured here",
        table_1,
        (
            "Section 4.2 says nearly 50 % of the time waits for DRAM, Table 1 says 87.5 % of slots.",
            "The table's caption has 4192 inputs; Llama 3 8B's up_proj has 4096.",
            "A share of the read bandwidth is no share of slots: a kernel that is bound by memory is near 100 % of it.",
        ),
        seconds=4,
    ),
    PAPER.item(
        "table2",
        "speed-up of every projection of a layer, 50 % zero",
        "measured here",
        table_2,
        (
            "Ours has one time for all projections of a shape. Weights are random, in copies that no cache holds.",
            "The paper's baseline is torch's bfloat16; where a processor has none, ours is torch's float32.",
        ),
        seconds=9,
    ),
    PAPER.item(
        "fig16",
        "the vector kernel by number of cores",
        "measured here",
        figure_16,
        ("The paper's baseline has one column group on 8 cores; ours is the vector kernel on the fewest cores.",),
        seconds=5,
    ),
)
