"""Figures 3, 4, 5 and 11 to 18: what the text says of them, and all that they plot beside it."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from ...item import Ours, Track
from ...published import read_paper
from .bands import cells, ratios
from .schemes import Q4, Q8, Q8_5, Q8_SPARSE, Q16, Q16_SPARSE, SCHEMES, WEIGHTS, prediction, speed, token_time

if TYPE_CHECKING:
    from ....roofsurface import Decompressor
    from ....simulate.deca import System

PAPER = read_paper("deca")
FIGURE_3_SCHEMES = [Q16, Q4, Q8, *Q8_SPARSE]


def figure_3(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....roofsurface import Nothing
    from ....simulate.deca import Baseline, Software

    for memory, machine in (("DDR", "spr-ddr"), ("HBM", "spr-hbm")):
        for scheme in track(FIGURE_3_SCHEMES, f"schemes with {memory}"):
            system: System = Baseline() if scheme == Q16 else Software()
            optimal = prediction(machine, scheme, Nothing(), 16).flops / 1e12
            observed = speed(machine, system, scheme, 16, weights).tflops
            yield Ours(f"{memory}, optimal", scheme.name, optimal, "TFLOPS", origin="model")
            yield Ours(f"{memory}, observed", scheme.name, observed, "TFLOPS")
            yield Ours(f"{memory}, optimal over observed", scheme.name, optimal / observed, "x")


FIGURE_4_SCHEMES = [Q4, Q8_5, Q16_SPARSE[1], Q16_SPARSE[3]]


def figure_4(track: Track, *, batch: int = 4) -> Iterator[Ours]:
    from ....roofsurface import Libxsmm

    for scheme in FIGURE_4_SCHEMES:
        limits = prediction("spr-hbm", scheme, Libxsmm(), batch)
        yield Ours("bound by", scheme.name, limits.surface.binding)
        yield Ours("height of the surface", scheme.name, limits.flops / 1e12, "TFLOPS")
        yield Ours("AI_XM", scheme.name, 1 / limits.demands["memory"], "1/byte")
        yield Ours("AI_XV", scheme.name, 1 / limits.demands["vector"], "1/operation")


def figure_5(track: Track) -> Iterator[Ours]:
    from ....roofsurface import Libxsmm

    yield from _regions("5b, DDR", "spr-ddr", Libxsmm(), 16)
    for row, faster in (("5a, HBM", 1.0), ("5c, HBM, 4 times VOS", 4.0)):
        regions = list(_regions(row, "spr-hbm", Libxsmm(faster), 16))
        yield Ours(row, "bound by vector", sum(one.value == "vector" for one in regions))
        yield from regions


def _regions(row: str, machine: str, decompressor: "Decompressor", batch: int) -> Iterator[Ours]:
    for scheme in SCHEMES:
        yield Ours(row, scheme.name, prediction(machine, scheme, decompressor, batch).surface.binding)


def _speed_ups(track: Track, machine: str, weights: int) -> Iterator[Ours]:
    """Of software, DECA and the roofline over uncompressed weights, N = 1."""
    from ....roofsurface import Nothing
    from ....simulate.deca import Accelerated, Baseline, Software

    plain = speed(machine, Baseline(), Q16, 1, weights).tflops
    for scheme in track(SCHEMES, "schemes"):
        software = speed(machine, Software(), scheme, 1, weights).tflops
        deca = speed(machine, Accelerated(), scheme, 1, weights).tflops
        yield Ours("software", scheme.name, software / plain, "x")
        yield Ours("DECA", scheme.name, deca / plain, "x")
        optimal = prediction(machine, scheme, Nothing(), 1).flops / 1e12
        yield Ours("optimal", scheme.name, optimal / plain, "x", origin="model")
        yield Ours("DECA over software", scheme.name, deca / software, "x")
    for scheme in track((Q4, Q8_5), "bands"):
        deca = speed(machine, Accelerated(), scheme, 1, weights).tflops
        software = speed(machine, Software(), scheme, 1, weights).tflops
        over_plain = ratios(machine, scheme, Baseline(), Q16, 1, weights)
        over_software = ratios(machine, scheme, Software(), scheme, 1, weights)
        yield from cells("DECA", scheme.name, deca / plain, over_plain, "x")
        yield from cells("DECA over software", scheme.name, deca / software, over_software, "x")


def figure_11(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    return _speed_ups(track, "spr-ddr", weights)


def figure_12(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    return _speed_ups(track, "spr-hbm", weights)


CORES = (8, 16, 32, 56)


def figure_13(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....simulate.deca import Accelerated, Software

    means = {}
    for cores in track(CORES, "numbers of cores"):
        for name, system in (("software", Software()), ("DECA", Accelerated())):
            means[name, cores] = _mean_tflops("spr-ddr", system, 4, weights, cores)
            yield Ours(f"{name}, {cores} cores", "mean TFLOPS", means[name, cores], "TFLOPS")
    yield Ours("16 DECA cores over 56 plain ones", "mean TFLOPS", means["DECA", 16] / means["software", 56])


def _mean_tflops(machine: str, system: "System", batch: int, weights: int, cores: int = 0) -> float:
    return mean(speed(machine, system, scheme, batch, weights, cores).tflops for scheme in SCHEMES)


def figure_14(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....simulate.deca import Accelerated, Baseline, Software

    plain = speed("spr-hbm", Baseline(), Q16, 1, weights).tflops
    systems = {"more AVX units": Software("more"), "wider AVX units": Software("wider"), "DECA": Accelerated()}
    ratios: dict[str, list[float]] = {name: [] for name in systems}
    for scheme in track(SCHEMES, "schemes"):
        for name, system in systems.items():
            ratio = speed("spr-hbm", system, scheme, 1, weights).tflops / plain
            ratios[name].append(ratio)
            yield Ours(name, scheme.name, ratio, "x")
    for name in ("more AVX units", "wider AVX units"):
        over = mean(deca / other for deca, other in zip(ratios["DECA"], ratios[name], strict=True))
        yield Ours(f"DECA over {name}", "mean", over)


def figure_15(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....hardware import read_machine
    from ....roofsurface import POWERS_OF_TWO, Deca, Space, smallest
    from ....simulate.deca import Accelerated

    machine, kernels = read_machine("spr-hbm"), [(scheme.format, scheme.density) for scheme in SCHEMES]
    least, note = smallest(machine, kernels), "with seven tables dense Q8 is still bound by memory"
    yield Ours("smallest engine that binds none", "W, L", str(least), note=note, origin="model")
    least = smallest(machine, kernels, Space(tables=POWERS_OF_TWO))
    yield Ours("smallest engine, tables in powers of two", "W, L", str(least), origin="model")
    times: dict[Deca, Sequence[float]] = {}
    for engine in track((Deca(8, 4), Deca(32, 7), Deca(32, 8), Deca(64, 64)), "engines"):
        yield from _regions(f"bound by, {{{engine.width}, {engine.tables}}}", "spr-hbm", engine, 16)
        times[engine] = [speed("spr-hbm", Accelerated(engine), scheme, 1, weights).seconds for scheme in SCHEMES]
    yield Ours("{32, 8} over {8, 4}", "mean of schemes", _mean_ratio(times[Deca(8, 4)], times[Deca(32, 8)]))
    yield Ours("{32, 8} over {32, 7}", "mean of schemes", _mean_ratio(times[Deca(32, 7)], times[Deca(32, 8)]), "x")
    yield Ours("{64, 64} over {32, 8}", "mean of schemes", _mean_ratio(times[Deca(32, 8)], times[Deca(64, 64)]))


def _mean_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    return mean(one / other for one, other in zip(slow, fast, strict=True))


FIGURE_16_SCHEMES = [Q8, Q8_SPARSE[0], Q8_SPARSE[2], Q8_5]


def figure_16(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....simulate.deca import Accelerated

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


def figure_17(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    times = {}
    for batch in track((1, 2, 4, 8, 16, 32, 64), "batches"):
        times[batch] = token_time("Llama2-70B", "software", Q16, batch, weights)
        yield Ours("next token", f"N={batch}", times[batch], "ms")
        yield Ours("throughput", f"N={batch}", 1e3 * batch / times[batch], "token/s")
    yield Ours("next token, N=16 over N=1", "Q16", times[16] / times[1])
    yield Ours("next token, N=64 over N=16", "Q16", times[64] / times[16])


def figure_18(track: Track) -> Iterator[Ours]:
    from ....roofsurface import Libxsmm

    regions = list(_regions("HBM, N=64", "spr-hbm", Libxsmm(), 64))
    yield Ours("HBM, N=64", "bound by vector", sum(one.value == "vector" for one in regions))
    yield from regions


FIGURES = (
    PAPER.item(
        "fig3",
        "Rooflines and what software reaches, N=16",
        "simulated",
        figure_3,
        ("Section 3.3 has optimal 5.25 times observed at Q8_5%; table 2 has 70 and 13.7, which is 5.11 times.",),
    ),
    PAPER.item(
        "fig4",
        "The Roof-Surface, HBM",
        "exact",
        figure_4,
        ("The caption says N=16, the text N=4; regions are the same.",),
    ),
    PAPER.item("fig5", "Bounding regions: HBM, DDR, four times the vector rate", "exact", figure_5),
    PAPER.item("fig11", "Speed-ups over uncompressed weights, DDR, N=1", "simulated", figure_11, seconds=8),
    PAPER.item("fig12", "Speed-ups over uncompressed weights, HBM, N=1", "simulated", figure_12, seconds=8),
    PAPER.item("fig13", "TFLOPS by number of cores, DDR, N=4", "simulated", figure_13, seconds=9),
    PAPER.item("fig14", "DECA beside more and wider vector units, HBM, N=1", "simulated", figure_14, seconds=4),
    PAPER.item(
        "fig15",
        "Engines of several sizes, HBM",
        "simulated",
        figure_15,
        (
            "Every number of tables is searched: seven are enough. The paper's {32, 8} is the smallest in powers of "
            "two, which all engines that it shows have; it does not say that it tried no other.",
        ),
        seconds=9,
    ),
    PAPER.item("fig16", "What each feature of the integration gives, HBM, N=4", "simulated", figure_16, seconds=4),
    PAPER.item("fig17", "Next token and throughput by batch, Llama2-70B", "simulated", figure_17),
    PAPER.item("fig18", "Bounding regions with 64 rows", "exact", figure_18),
)
