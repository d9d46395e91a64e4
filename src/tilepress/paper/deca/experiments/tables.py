"""Tables 1 to 7."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...causes import explained
from ...item import Ours, Track
from ...published import read_paper
from .bands import cells, rates, ratios
from .causes import CAUSES
from .schemes import Q4, Q8, Q8_30, Q8_SPARSE, Q16, Q16_SPARSE, WEIGHTS, Scheme, prediction, speed, token_time

if TYPE_CHECKING:
    from ....simulate.layers import Transformer

PAPER = read_paper("deca")
MACHINES = {"DDR": "spr-ddr", "HBM": "spr-hbm"}
BATCHES = (1, 4, 16)
INPUTS = (32, 128)


def table_1(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....hardware import read_machine
    from ....simulate.deca import Baseline
    from ....simulate.deca.next_token import LLAMA2_70B, next_token

    for memory, name in track(list(MACHINES.items()), "memories"):
        machine = read_machine(name)
        for tokens in INPUTS:
            for batch in BATCHES:
                sizes = (batch, tokens, weights)
                time = next_token(machine, Baseline(), LLAMA2_70B, Q16.format, 1.0, *sizes)
                yield Ours(f"N={batch}", f"{memory}, {tokens} tokens", 100 * time.gemms / time.total, "%")


TABLE_2_SCHEMES = [Q4, Q8, *Q8_SPARSE, *Q16_SPARSE]


@explained(CAUSES["table2"])
def table_2(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....roofsurface import Libxsmm
    from ....simulate.deca import Software

    for scheme in track(TABLE_2_SCHEMES, "schemes"):
        limits = prediction("spr-hbm", scheme, Libxsmm(), 16)
        yield Ours("R-L", scheme.name, limits.roofline_flops / 1e12)
        yield Ours("R-S", scheme.name, limits.flops / 1e12)
        real = speed("spr-hbm", Software(), scheme, 16, weights).tflops
        yield Ours("Real", scheme.name, real, origin="simulated")


_AREA, _POWER = "area of 56 elements", "power of 56 elements"


@explained(CAUSES["table3"])
def table_3(track: Track) -> Iterator[Ours]:
    from ....simulate.deca.area import area, power, shares

    die = PAPER.values("die")["Sapphire Rapids", "area"]
    for row, parts in ((_AREA, area()), (_POWER, power())):
        yield Ours(row, "total", 56 * sum(parts.values()))
        for part, share in shares(parts).items():
            yield Ours(row, part, 100 * share)
    yield Ours(_AREA, "share of the die", 100 * 56 * sum(area().values()) / die)


TABLE_4_SCHEMES = [Q8, Q8_SPARSE[0], Q8_SPARSE[2], Q8_SPARSE[4]]


def table_4(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....simulate.deca import Accelerated, Software

    for scheme in track(TABLE_4_SCHEMES, "densities"):
        for name, system, part in (("software", Software(), "AVX"), ("DECA", Accelerated(), "DECA")):
            busy = speed("spr-hbm", system, scheme, 1, weights)
            for column, share in (("MEM", busy.memory), ("TMUL", busy.matrix), (part, busy.decompressor)):
                yield Ours(f"{scheme.density:.0%}", f"{name}, {column}", 100 * share)
        yield from _matrix_band(scheme, weights)


def _matrix_band(scheme: Scheme, weights: int) -> Iterator[Ours]:
    """Of the matrix units' share, which is proportional to speed."""
    from ....simulate.deca import Accelerated

    figure = speed("spr-hbm", Accelerated(), scheme, 1, weights)
    several = rates("spr-hbm", Accelerated(), scheme, 1, weights)
    shares = [100 * figure.matrix * rate / figure.tflops for rate in several]
    yield from cells(f"{scheme.density:.0%}", "DECA, TMUL", 100 * figure.matrix, shares, "%")


MISSES = PAPER.values("table5")["none", "L2 misses"]  # million: of weights and of activations


@explained(CAUSES["table5"])
def table_5(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....simulate.deca import Accelerated

    systems = {
        "none": Accelerated(prefetcher="none"),
        "default L2": Accelerated(prefetcher="l2"),
        **{f"DECA, degree {degree}": Accelerated(degree=degree) for degree in (1, 5, 15)},
    }
    tracked = track(list(systems.items()), "prefetchers")
    speeds = {row: speed("spr-hbm", system, Q4, 4, weights) for row, system in tracked}
    million = MISSES / (speeds["none"].demanded + speeds["none"].activations_demanded)
    for row, one in speeds.items():
        yield Ours(row, "performance", one.tflops)
        yield Ours(row, "L2 misses", million * (one.demanded + one.activations_demanded))
        yield Ours(row, "weight prefetches", million * one.prefetched, "million")
        yield Ours(row, "other prefetches", million * one.activations_prefetched, "million")
    deca, degree_5 = systems["DECA, degree 5"], speeds["DECA, degree 5"].tflops
    yield from cells("DECA, degree 5", "performance", degree_5, rates("spr-hbm", deca, Q4, 4, weights), "TFLOPS")
    order = " < ".join(sorted(speeds, key=lambda row: speeds[row].tflops))
    yield Ours("order", "performance", order.replace("DECA, degree ", "").replace("default ", ""))


_SCHEMES_6 = [Q16, Q4, Q8_30]


@explained(CAUSES["table6"])
def table_6(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....simulate.deca.next_token import LLAMA2_70B, OPT_66B

    times: dict[tuple[str, str, int, str], float] = {}
    for model in (LLAMA2_70B, OPT_66B):
        for batch in track((1, 16, 64), f"batches of {model.name}"):
            for scheme in _SCHEMES_6:
                for name in ("software", "DECA") if scheme != Q16 else ("software",):
                    time = token_time(model.name, name, scheme, batch, weights)
                    times[model.name, name, batch, scheme.name] = time
                    yield Ours(f"{model.name}, {name}", f"N={batch}, {scheme.name}", time)
    yield from _spread(times)
    for scheme in (Q4, Q8_30):
        gains = [_token_gain(LLAMA2_70B, ratio, times, scheme.name) for ratio in _gemm_gains(scheme, weights)]
        software, deca = (times[LLAMA2_70B.name, name, 1, scheme.name] for name in ("software", "DECA"))
        yield from cells("Llama2-70B, DECA over software", f"N=1, {scheme.name}", software / deca, gains, "x")


def _gemm_gains(scheme: Scheme, weights: int) -> list[float]:
    """What DECA makes of software's time in GeMMs."""
    from ....simulate.deca import Software

    return ratios("spr-hbm", scheme, Software(), scheme, 1, weights)


def _token_gain(
    model: "Transformer", ratio: float, times: dict[tuple[str, str, int, str], float], scheme: str
) -> float:
    """Of a token, if GeMMs gain `ratio` and the rest nothing."""
    from ....simulate.deca.next_token import other_time

    software, other = times[model.name, "software", 1, scheme], 1e3 * other_time(model, 1, 192)
    return software / (other + (software - other) / ratio)


def _spread(times: dict[tuple[str, str, int, str], float]) -> Iterator[Ours]:
    """The least and the most that DECA gains."""
    of_deca = [key for key in times if key[1] == "DECA"]
    over_software = [
        times[model, "software", batch, scheme] / times[model, name, batch, scheme]
        for model, name, batch, scheme in of_deca
    ]
    over_plain = [
        times[model, "software", batch, "Q16"] / times[model, name, batch, scheme]
        for model, name, batch, scheme in of_deca
        if batch <= 16
    ]
    for row, gains in (("DECA over software", over_software), ("DECA over Q16, N = 1 and 16", over_plain)):
        yield Ours(row, "least", min(gains))
        yield Ours(row, "most", max(gains))


GPUS = {"RTX 6000 Ada": "rtx-6000-ada", "A100 80 GB": "a100-80gb-pcie", "H100 80 GB": "h100-80gb-pcie"}


def table_7(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ....hardware import read_machine
    from ....roofsurface import tile_bytes
    from ....simulate.deca.next_token import LLAMA2_70B

    times, rates = PAPER.values("table7"), PAPER.values("gpus")
    bytes = LLAMA2_70B.tiles * tile_bytes(Q4.format, 1.0)
    yield Ours("next token", "SPR HBM", token_time("Llama2-70B", "software", Q4, 1, weights))
    deca = token_time("Llama2-70B", "DECA", Q4, 1, weights)
    yield Ours("next token", "SPR HBM + DECA", deca)
    for column, name in track(list(GPUS.items()), "GPUs"):
        source = f"no such GPU here; the repository that the paper cites has {rates['decoding', column]} tokens/s"
        yield Ours("next token", column, None, note=source)
        bound = 1e3 * bytes / read_machine(name).memory.bandwidth
        yield Ours("next token, memory alone", column, bound, "ms", "reading the weights once, no less", "model")
    spr, h100 = read_machine("spr-hbm"), read_machine("h100-80gb-pcie")
    h100_time = times["next token", "H100 80 GB"]
    yield Ours("DECA over H100", "next token", deca / h100_time, note=f"over the paper's {h100_time} ms")
    yield Ours("H100 over SPR", "bandwidth", h100.memory.bandwidth / spr.memory.bandwidth, origin="model")
    compute = 16 * h100.matrix_rate / (16 * spr.matrix_rate)
    yield Ours("H100 over SPR", "compute", compute, note="both in multiply-adds", origin="model")


TABLES = (
    PAPER.item(
        "table1",
        "Share of GeMMs in the next token, Llama2-70B",
        "simulated",
        table_1,
        ("The time of all but GeMMs was fitted to this table: three constants, twelve cells.",),
        seconds=2,
    ),
    PAPER.item(
        "table2",
        "Limits of roofline and Roof-Surface, N=16, HBM",
        "simulated",
        table_2,
        (
            "The table's rooflines are those of 830 GB/s and 70 TFLOPS; section 7 has 850 GB/s, which gives 71.68: "
            "ours.",
            "Real was measured on a machine; ours is the simulated software-only system, fitted to table 4.",
        ),
        seconds=2,
    ),
    PAPER.item(
        "table3",
        "Area and power from the structures of table 3",
        "simulated",
        table_3,
        (
            "Area: memories are CACTI's (benchmarks/cacti), all logic is our RTL in cells of 7 nm (ASAP7), so nothing "
            "but the memories is scaled. Logic counts as the rest, registers of the small queues among it.",
            "Power: accesses of memories are CACTI's, logic is our RTL, a tile of MXFP4 with every weight. Nothing was "
            "fitted to these cells, but how memories were configured was decided with them in sight (docs/deca.md).",
            "Power falls a quarter short of the paper's: what CACTI was configured with there is not printed.",
            "0.22 W are leakage of memories; that of logic is in its energy. Section 7 has less than 0.35 W idle.",
        ),
    ),
    PAPER.item(
        "table4",
        "How busy memory, matrix units and decompressors are, Q8, N=1, HBM",
        "simulated",
        table_4,
        ("Latencies and shares were fitted to this table and table 5.",),
    ),
    PAPER.item(
        "table5",
        "Prefetching, MXFP4, N=4, HBM",
        "simulated",
        table_5,
        (
            "Counts are scaled to the paper's 90 million misses. Latencies were fitted to this table and table 4.",
            "Where a page begins, degree 1 is later than its tiles: two of 16, as many as the L2 prefetcher misses.",
            "Degree 15 loses a tenth of its speed in the table with 1 % more misses; here it takes misses to lose any.",
        ),
    ),
    PAPER.item(
        "table6",
        "Next token of Llama2-70B and OPT-66B, HBM",
        "simulated",
        table_6,
        (
            "No constant was fitted to this table.",
            "Section 12.2 has tiles decompressed once for 64 rows, but here 64 rows take about 4 times as long as 16.",
        ),
        seconds=4,
    ),
    PAPER.item(
        "table7",
        "CPU, CPU with DECA, and GPUs: 4-bit weights, Llama2-70B, N=1",
        "simulated",
        table_7,
        (
            "The table's 72 TFLOPS count a multiply-add as one and its GPUs' as two: 14x is 6.9x in the same units.",
            "Its 989 TFLOPS are those of the H100's SXM card, its 2000 GB/s of the PCIe card, which has 756 TFLOPS.",
            "The repository that it cites has 58.8, 38.9 and 38.6 ms for the GPUs, by the tokens a second it prints.",
        ),
    ),
)
