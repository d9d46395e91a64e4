"""Figures 3, 4, 5 and 11 to 18: what the text says of them, and all that they plot beside it."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from ..item import Item, Ours, Published, Track
from .runs import Q4, Q8, Q8_5, Q8_SPARSE, Q16, Q16_SPARSE, SCHEMES, WEIGHTS, prediction, speed, token_time

if TYPE_CHECKING:
    from ...roofsurface import Decompressor
    from ...simulate.deca import System

FIGURE_3_SCHEMES = [Q16, Q4, Q8, *Q8_SPARSE]
FIGURE_3 = [Published("HBM, optimal over observed", "Q8_5%", 5.25, "x", "section 3.3", within=0.15)]


def figure_3(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...roofsurface import Nothing
    from ...simulate.deca import Baseline, Software

    for memory, machine in (("DDR", "spr-ddr"), ("HBM", "spr-hbm")):
        for scheme in track(FIGURE_3_SCHEMES, f"schemes with {memory}"):
            system: System = Baseline() if scheme == Q16 else Software()
            optimal = prediction(machine, scheme, Nothing(), 16).flops / 1e12
            observed = speed(machine, system, scheme, 16, weights).tflops
            yield Ours(f"{memory}, optimal", scheme.name, optimal, "TFLOPS", origin="model")
            yield Ours(f"{memory}, observed", scheme.name, observed, "TFLOPS")
            yield Ours(f"{memory}, optimal over observed", scheme.name, optimal / observed, "x")


FIGURE_4_SCHEMES = [Q4, Q8_5, Q16_SPARSE[1], Q16_SPARSE[3]]
FIGURE_4 = [
    Published("bound by", scheme.name, domain, "", "section 4.1")
    for scheme, domain in zip(FIGURE_4_SCHEMES, ("vector", "vector", "memory", "vector"), strict=True)
]


def figure_4(track: Track, *, batch: int = 4) -> Iterator[Ours]:
    from ...roofsurface import Libxsmm

    for scheme in FIGURE_4_SCHEMES:
        found = prediction("spr-hbm", scheme, Libxsmm(), batch)
        yield Ours("bound by", scheme.name, found.surface.binding)
        yield Ours("height of the surface", scheme.name, found.flops / 1e12, "TFLOPS")
        yield Ours("AI_XM", scheme.name, 1 / found.demands["memory"], "1/byte")
        yield Ours("AI_XV", scheme.name, 1 / found.demands["vector"], "1/operation")


FIGURE_5 = [
    *(
        Published("5b, DDR", scheme.name, "vector" if scheme in Q8_SPARSE[3:] else "memory", "", "section 4.2")
        for scheme in SCHEMES
    ),
    Published("5a, HBM", "bound by vector", 6, "schemes", "section 4.2: the vast majority of twelve", relation=">"),
    Published("5c, HBM, 4 times VOS", "bound by vector", 0, "schemes", "section 4.2: not enough", relation=">"),
]


def figure_5(track: Track) -> Iterator[Ours]:
    from ...roofsurface import Libxsmm

    yield from _regions("5b, DDR", "spr-ddr", Libxsmm(), 16)
    for row, faster in (("5a, HBM", 1.0), ("5c, HBM, 4 times VOS", 4.0)):
        found = list(_regions(row, "spr-hbm", Libxsmm(faster), 16))
        yield Ours(row, "bound by vector", sum(one.value == "vector" for one in found))
        yield from found


def _regions(row: str, machine: str, decompressor: "Decompressor", batch: int) -> Iterator[Ours]:
    for scheme in SCHEMES:
        yield Ours(row, scheme.name, prediction(machine, scheme, decompressor, batch).surface.binding)


def _speed_ups(track: Track, machine: str, weights: int) -> Iterator[Ours]:
    """Of software, DECA and the roofline over uncompressed weights, N = 1."""
    from ...roofsurface import Nothing
    from ...simulate.deca import Accelerated, Baseline, Software

    plain = speed(machine, Baseline(), Q16, 1, weights).tflops
    for scheme in track(SCHEMES, "schemes"):
        software = speed(machine, Software(), scheme, 1, weights).tflops
        deca = speed(machine, Accelerated(), scheme, 1, weights).tflops
        yield Ours("software", scheme.name, software / plain, "x")
        yield Ours("DECA", scheme.name, deca / plain, "x")
        optimal = prediction(machine, scheme, Nothing(), 1).flops / 1e12
        yield Ours("optimal", scheme.name, optimal / plain, "x", origin="model")
        yield Ours("DECA over software", scheme.name, deca / software, "x")


FIGURE_11 = [Published("DECA over software", Q8_5.name, 1.7, "x", "section 8.1", within=0.1)]
FIGURE_12 = [Published("DECA over software", Q8_5.name, 4.0, "x", "section 8.1", within=0.1)]


def figure_11(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    return _speed_ups(track, "spr-ddr", weights)


def figure_12(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    return _speed_ups(track, "spr-hbm", weights)


CORES = (8, 16, 32, 56)
FIGURE_13 = [Published("16 DECA cores over 56 plain ones", "mean TFLOPS", 1, "x", "section 8.1", relation=">")]


def figure_13(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...simulate.deca import Accelerated, Software

    means = {}
    for cores in track(CORES, "numbers of cores"):
        for name, system in (("software", Software()), ("DECA", Accelerated())):
            means[name, cores] = _mean_tflops("spr-ddr", system, 4, weights, cores)
            yield Ours(f"{name}, {cores} cores", "mean TFLOPS", means[name, cores], "TFLOPS")
    yield Ours("16 DECA cores over 56 plain ones", "mean TFLOPS", means["DECA", 16] / means["software", 56])


def _mean_tflops(machine: str, system: "System", batch: int, weights: int, cores: int = 0) -> float:
    return mean(speed(machine, system, scheme, batch, weights, cores).tflops for scheme in SCHEMES)


FIGURE_14 = [
    Published("DECA over more AVX units", "mean", 1, "x", "section 8.1: far below DECA's", relation=">"),
    Published("DECA over wider AVX units", "mean", 1, "x", "section 8.1: far below DECA's", relation=">"),
]


def figure_14(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...simulate.deca import Accelerated, Baseline, Software

    plain = speed("spr-hbm", Baseline(), Q16, 1, weights).tflops
    systems = {"more AVX units": Software("more"), "wider AVX units": Software("wider"), "DECA": Accelerated()}
    ratios: dict[str, list[float]] = {name: [] for name in systems}
    for scheme in track(SCHEMES, "schemes"):
        for name, system in systems.items():
            found = speed("spr-hbm", system, scheme, 1, weights).tflops / plain
            ratios[name].append(found)
            yield Ours(name, scheme.name, found, "x")
    for name in ("more AVX units", "wider AVX units"):
        over = mean(deca / other for deca, other in zip(ratios["DECA"], ratios[name], strict=True))
        yield Ours(f"DECA over {name}", "mean", over)


FIGURE_15 = [
    Published("smallest engine that binds none", "W, L", "deca:w32:l8", "", "section 8.2"),
    Published("{32, 8} over {8, 4}", "mean of schemes", 2.0, "x", "section 8.2", within=0.1),
    Published("{64, 64} over {32, 8}", "mean of schemes", 1.03, "x", "section 8.2", relation="<"),
]


def figure_15(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...hardware import read_machine
    from ...roofsurface import Deca, smallest
    from ...simulate.deca import Accelerated

    kernels = [(scheme.format, scheme.density) for scheme in SCHEMES]
    found = smallest(read_machine("spr-hbm"), kernels)
    yield Ours("smallest engine that binds none", "W, L", str(found), origin="model")
    times: dict[Deca, Sequence[float]] = {}
    for engine in track((Deca(8, 4), Deca(32, 8), Deca(64, 64)), "engines"):
        yield from _regions(f"bound by, {{{engine.width}, {engine.tables}}}", "spr-hbm", engine, 16)
        times[engine] = [speed("spr-hbm", Accelerated(engine), scheme, 1, weights).seconds for scheme in SCHEMES]
    yield Ours("{32, 8} over {8, 4}", "mean of schemes", _mean_ratio(times[Deca(8, 4)], times[Deca(32, 8)]))
    yield Ours("{64, 64} over {32, 8}", "mean of schemes", _mean_ratio(times[Deca(32, 8)], times[Deca(64, 64)]))


def _mean_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    return mean(one / other for one, other in zip(slow, fast, strict=True))


FIGURE_16_SCHEMES = [Q8, Q8_SPARSE[0], Q8_SPARSE[2], Q8_5]
FIGURE_16 = [
    Published("TEPL over fences", Q8_5.name, 2.0, "x", "section 8.3: they double the performance", within=0.1),
    *(
        Published("+Reads L2 over base", scheme.name, 1, "x", "section 8.3: improves for all", relation=">")
        for scheme in FIGURE_16_SCHEMES
    ),
    *(
        Published("+DECA prefetcher over +Reads L2", scheme.name, 1, "x", "section 8.3: further", relation=">")
        for scheme in FIGURE_16_SCHEMES
    ),
]


def figure_16(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...simulate.deca import Accelerated

    steps = {
        "base": Accelerated(l2=False, prefetcher="none", registers=False, tepl=False),
        "+Reads L2": Accelerated(prefetcher="l2", registers=False, tepl=False),
        "+DECA prefetcher": Accelerated(registers=False, tepl=False),
        "+TOut Regs": Accelerated(tepl=False),
        "+TEPL": Accelerated(),
    }
    for scheme in track(FIGURE_16_SCHEMES, "densities"):
        times = {name: speed("spr-hbm", system, scheme, 4, weights).seconds for name, system in steps.items()}
        for name in steps:
            yield Ours(name, scheme.name, times["base"] / times[name], "x")
        yield Ours("+Reads L2 over base", scheme.name, times["base"] / times["+Reads L2"])
        after = times["+Reads L2"] / times["+DECA prefetcher"]
        yield Ours("+DECA prefetcher over +Reads L2", scheme.name, after)
        yield Ours("TEPL over fences", scheme.name, times["+TOut Regs"] / times["+TEPL"], "x")


FIGURE_17 = [
    Published("next token, N=16 over N=1", "Q16", 1.10, "x", "table 6; section 12.1: constant", within=0.1),
    Published("next token, N=64 over N=16", "Q16", 2.14, "x", "table 6; section 12.1: increases", within=0.1),
]


def figure_17(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    times = {}
    for batch in track((1, 2, 4, 8, 16, 32, 64), "batches"):
        times[batch] = token_time("Llama2-70B", "software", Q16, batch, weights)
        yield Ours("next token", f"N={batch}", times[batch], "ms")
        yield Ours("throughput", f"N={batch}", 1e3 * batch / times[batch], "token/s")
    yield Ours("next token, N=16 over N=1", "Q16", times[16] / times[1])
    yield Ours("next token, N=64 over N=16", "Q16", times[64] / times[16])


FIGURE_18 = [Published("HBM, N=64", "bound by vector", 1, "schemes", "section 12.2: many kernels still", relation=">")]


def figure_18(track: Track) -> Iterator[Ours]:
    from ...roofsurface import Libxsmm

    found = list(_regions("HBM, N=64", "spr-hbm", Libxsmm(), 64))
    yield Ours("HBM, N=64", "bound by vector", sum(one.value == "vector" for one in found))
    yield from found


FIGURES = (
    Item("deca/fig3", "Rooflines and what software reaches, N=16", "simulated", FIGURE_3, figure_3,
         ("Section 3.3 has optimal 5.25 times observed at Q8_5%; table 2 has 70 and 13.7, which is 5.11 times.",)),
    Item("deca/fig4", "The Roof-Surface, HBM", "exact", FIGURE_4, figure_4,
         ("The caption says N=16, the text N=4; regions are the same.",)),
    Item("deca/fig5", "Bounding regions: HBM, DDR, four times the vector rate", "exact", FIGURE_5, figure_5),
    Item("deca/fig11", "Speed-ups over uncompressed weights, DDR, N=1", "simulated", FIGURE_11, figure_11, seconds=4),
    Item("deca/fig12", "Speed-ups over uncompressed weights, HBM, N=1", "simulated", FIGURE_12, figure_12, seconds=3),
    Item("deca/fig13", "TFLOPS by number of cores, DDR, N=4", "simulated", FIGURE_13, figure_13, seconds=9),
    Item("deca/fig14", "DECA beside more and wider vector units, HBM, N=1", "simulated", FIGURE_14, figure_14,
         seconds=4),
    Item("deca/fig15", "Engines of three sizes, HBM", "simulated", FIGURE_15, figure_15, seconds=7),
    Item("deca/fig16", "What each feature of the integration gives, HBM, N=4", "simulated", FIGURE_16, figure_16,
         seconds=4),
    Item("deca/fig17", "Next token and throughput by batch, Llama2-70B", "simulated", FIGURE_17, figure_17),
    Item("deca/fig18", "Bounding regions with 64 rows", "exact", FIGURE_18, figure_18),
)  # fmt: skip
