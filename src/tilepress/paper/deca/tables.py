"""Tables 1 to 7."""

from collections.abc import Iterator

from ..item import Item, Ours, Published, Track, published_table
from .runs import Q4, Q8, Q8_30, Q8_SPARSE, Q16, Q16_SPARSE, WEIGHTS, prediction, speed, token_time

MACHINES = {"DDR": "spr-ddr", "HBM": "spr-hbm"}
BATCHES = (1, 4, 16)
INPUTS = (32, 128)
TABLE_1 = published_table(
    "section 3.1, table 1",
    "%",
    [f"{memory}, {tokens} tokens" for memory in MACHINES for tokens in INPUTS],
    {"N=1": [97.4, 97.5, 89.8, 89.5], "N=4": [97.3, 97.1, 89.4, 88.9], "N=16": [96.6, 95.5, 88.3, 85.9]},
    within=2,
)


def table_1(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...hardware import read_machine
    from ...simulate.deca import Baseline
    from ...simulate.deca.next_token import LLAMA2_70B, next_token

    for memory, name in track(list(MACHINES.items()), "memories"):
        machine = read_machine(name)
        for tokens in INPUTS:
            for batch in BATCHES:
                sizes = (batch, tokens, weights)
                found = next_token(machine, Baseline(), LLAMA2_70B, Q16.format, 1.0, *sizes)
                yield Ours(f"N={batch}", f"{memory}, {tokens} tokens", 100 * found.gemms / found.total, "%")


TABLE_2_SCHEMES = [Q4, Q8, *Q8_SPARSE, *Q16_SPARSE]
_COLUMNS_2 = [one.name for one in TABLE_2_SCHEMES]
_LIMITS = {
    "R-L": [25.2, 13.3, 21.2, 31.2, 40.8, 59.2, 70, 11.8, 18.4, 25.2, 40.8, 59.2],
    "R-S": [11.5, 13.3, 16.1, 16.1, 16.1, 16.1, 16.1, 11.8, 18.4, 23.0, 23.0, 23.0],
}
_REAL = {"Real": [10.6, 10.0, 13.0, 13.5, 13.6, 13.5, 13.7, 9.2, 12.3, 15.4, 16.3, 16.75]}
TABLE_2 = [
    *published_table("section 4.1, table 2", "TFLOPS", _COLUMNS_2, _LIMITS, within=0.03),
    *published_table("section 4.1, table 2, measured on a real machine", "TFLOPS", _COLUMNS_2, _REAL, within=0.2),
]


def table_2(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...roofsurface import Libxsmm
    from ...simulate.deca import Software

    for scheme in track(TABLE_2_SCHEMES, "schemes"):
        found = prediction("spr-hbm", scheme, Libxsmm(), 16)
        yield Ours("R-L", scheme.name, found.roofline_flops / 1e12)
        yield Ours("R-S", scheme.name, found.flops / 1e12)
        real = speed("spr-hbm", Software(), scheme, 16, weights).tflops
        yield Ours("Real", scheme.name, real, origin="simulated")


_AREA, _POWER = "area of 56 elements", "power of 56 elements"
TABLE_3 = [
    Published(_AREA, "total", 2.51, "mm2", "section 7, 4", within=0.1),
    Published(_AREA, "queues and output registers", 55, "%", "section 7, 4", within=10),
    Published(_AREA, "look-up tables", 22, "%", "section 7, 4", within=10),
    Published(_AREA, "rest", 23, "%", "section 7, 4", within=10),
    Published(_POWER, "total", 3.1, "W", "section 7, 4", within=0.2),
    Published(_POWER, "queues and output registers", 50, "%", "section 7, 4", within=10),
    Published(_POWER, "look-up tables", 21, "%", "section 7, 4", within=10),
    Published(_POWER, "rest", 29, "%", "section 7, 4", within=10),
    Published(_AREA, "share of the die", 0.2, "% of the die", "section 7, 4", relation="<"),
]
DIE = 1600  # mm2, section 7, 4


def table_3(track: Track) -> Iterator[Ours]:
    from ...simulate.deca.area import area, power, shares

    for row, parts in ((_AREA, area()), (_POWER, power())):
        yield Ours(row, "total", 56 * sum(parts.values()))
        for part, share in shares(parts).items():
            yield Ours(row, part, 100 * share)
    yield Ours(_AREA, "share of the die", 100 * 56 * sum(area().values()) / DIE)


TABLE_4_SCHEMES = [Q8, Q8_SPARSE[0], Q8_SPARSE[2], Q8_SPARSE[4]]
TABLE_4 = published_table(
    "section 8.1, table 4",
    "%",
    ["software, MEM", "software, TMUL", "software, AVX", "DECA, MEM", "DECA, TMUL", "DECA, DECA"],
    {"100%": [74, 14, 50, 93, 18, 75], "50%": [66, 20, 88, 92, 28, 71], "20%": [35, 20, 89, 91, 53, 63],
     "5%": [19, 20, 89, 73, 79, 87]},
    within=5,
)  # fmt: skip


def table_4(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...simulate.deca import Accelerated, Software

    for scheme in track(TABLE_4_SCHEMES, "densities"):
        for name, system, part in (("software", Software(), "AVX"), ("DECA", Accelerated(), "DECA")):
            found = speed("spr-hbm", system, scheme, 1, weights)
            for column, share in (("MEM", found.memory), ("TMUL", found.matrix), (part, found.decompressor)):
                yield Ours(f"{scheme.density:.0%}", f"{name}, {column}", 100 * share)


_COUNTS_5 = {
    "none": [90, 0, 6],
    "default L2": [12, 78, 6],
    "DECA, degree 1": [12, 79, 6],
    "DECA, degree 5": [1, 89, 6],
    "DECA, degree 15": [2, 90, 5],
}
TABLE_5 = [
    *published_table(
        "section 8.3, table 5",
        "TFLOPS",
        ["performance"],
        {
            "none": [2.9],
            "default L2": [3.5],
            "DECA, degree 1": [3.4],
            "DECA, degree 5": [6.0],
            "DECA, degree 15": [5.4],
        },
        within=0.15,
    ),
    *(
        # Printed in whole millions: what rounds to the same number is the same.
        Published(row, column, count, "million", "section 8.3, table 5", within=max(0.15, 0.5 / max(count, 1)))
        for row, counts in _COUNTS_5.items()
        for column, count in zip(("L2 misses", "weight prefetches", "other prefetches"), counts, strict=True)
    ),
    Published("order", "performance", "none < 1 < L2 < 15 < 5", "", "section 8.3, table 5"),
]
TABLE_5_MISSES = 90.0  # million, without prefetching: all lines of weights, and what of activations the L2 misses


def _activation_lines(batch: int) -> float:
    """Lines of activations for each line of weights: every core reads those of its layer once. The layers are like the
    large ones of Llama-2-70B (section 7), and each is fed by the one before, so they go up and down in turn."""
    from ...hardware import read_machine
    from ...hardware.machine import TILE_WEIGHTS
    from ...roofsurface import tile_bytes
    from ...simulate.deca.next_token import LLAMA2_70B as model

    activations = read_machine("spr-hbm").cores * (model.hidden + model.feed_forward) * batch * 2
    return activations / (2 * model.hidden * model.feed_forward / TILE_WEIGHTS * tile_bytes(Q4.format, 1.0))


def table_5(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...simulate.deca import Accelerated

    systems = {
        "none": Accelerated(prefetcher="none"),
        "default L2": Accelerated(prefetcher="l2"),
        **{f"DECA, degree {degree}": Accelerated(degree=degree) for degree in (1, 5, 15)},
    }
    followed = track(list(systems.items()), "prefetchers")
    found = {row: speed("spr-hbm", system, Q4, 4, weights) for row, system in followed}
    others, missed = _activation_lines(4), found["default L2"].demanded
    million = TABLE_5_MISSES / (1 + others * missed)
    note = "counted, not simulated: each core reads a layer's activations once, by the default L2 prefetcher"
    for row, one in found.items():
        yield Ours(row, "performance", one.tflops)
        yield Ours(row, "L2 misses", million * (one.demanded + others * missed))
        yield Ours(row, "weight prefetches", million * one.prefetched, "million")
        yield Ours(row, "other prefetches", million * others * (1 - missed), "million", note, "model")
    order = " < ".join(sorted(found, key=lambda row: found[row].tflops))
    yield Ours("order", "performance", order.replace("DECA, degree ", "").replace("default ", ""))


_SCHEMES_6 = [Q16, Q4, Q8_30]
_COLUMNS_6 = [f"N={batch}, {scheme.name}" for batch in (1, 16, 64) for scheme in _SCHEMES_6]
TABLE_6 = [
    *published_table(
        "section 8.4, table 6",
        "ms",
        _COLUMNS_6,
        {
            "Llama2-70B, software": [192.3, 124.6, 98.2, 211.2, 139.1, 116.6, 452.5, 441.6, 423.4],
            "Llama2-70B, DECA": [None, 68.3, 59.6, None, 82.7, 75.7, None, 277.1, 259.8],
            "OPT-66B, software": [178.5, 117.0, 91.3, 203.9, 132.3, 111.7, 470.0, 436.4, 407.3],
            "OPT-66B, DECA": [None, 60.8, 53.9, None, 81.8, 75.5, None, 236.5, 230.6],
        },
        within=0.2,
    ),
    Published("DECA over software", "least", 1.6, "x", "section 8.4", within=0.1),
    Published("DECA over software", "most", 1.9, "x", "section 8.4", within=0.1),
    Published("DECA over Q16, N = 1 and 16", "least", 2.5, "x", "section 8.4", within=0.1),
    Published("DECA over Q16, N = 1 and 16", "most", 3.3, "x", "section 8.4", within=0.1),
]


def table_6(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...simulate.deca.next_token import LLAMA2_70B, OPT_66B

    times: dict[tuple[str, str, int, str], float] = {}
    for model in (LLAMA2_70B, OPT_66B):
        for batch in track((1, 16, 64), f"batches of {model.name}"):
            for scheme in _SCHEMES_6:
                for name in ("software", "DECA") if scheme != Q16 else ("software",):
                    found = token_time(model.name, name, scheme, batch, weights)
                    times[model.name, name, batch, scheme.name] = found
                    yield Ours(f"{model.name}, {name}", f"N={batch}, {scheme.name}", found)
    yield from _spread(times)


def _spread(times: dict[tuple[str, str, int, str], float]) -> Iterator[Ours]:
    """The least and the most that DECA gains."""
    of_deca = [key for key in times if key[1] == "DECA"]
    over_software = [times[model, "software", batch, scheme] / times[model, name, batch, scheme]
                     for model, name, batch, scheme in of_deca]  # fmt: skip
    over_plain = [times[model, "software", batch, "Q16"] / times[model, name, batch, scheme]
                  for model, name, batch, scheme in of_deca if batch <= 16]  # fmt: skip
    for row, ratios in (("DECA over software", over_software), ("DECA over Q16, N = 1 and 16", over_plain)):
        yield Ours(row, "least", min(ratios))
        yield Ours(row, "most", max(ratios))


_TOKENS = {"RTX 6000 Ada": 17.02, "A100 80 GB": 25.68, "H100 80 GB": 25.88}  # a second, 70B q4_0, in [11]'s README
GPUS = {"RTX 6000 Ada": "rtx-6000-ada", "A100 80 GB": "a100-80gb-pcie", "H100 80 GB": "h100-80gb-pcie"}
_COLUMNS_7 = ["SPR HBM", "SPR HBM + DECA", *GPUS]
TABLE_7 = [
    *published_table("section 8.4, table 7", "ms", _COLUMNS_7, {"next token": [125, 68, 58, 40, 38]}, within=0.1),
    Published("DECA over H100", "next token", 1.8, "x", "section 8.4", within=0.1),
    Published("H100 over SPR", "bandwidth", 2.4, "x", "section 8.4", within=0.05),
    Published("H100 over SPR", "compute", 14, "x", "section 8.4", within=0.05),
]


def table_7(track: Track, *, weights: int = WEIGHTS) -> Iterator[Ours]:
    from ...hardware import read_machine
    from ...roofsurface import tile_bytes
    from ...simulate.deca.next_token import LLAMA2_70B

    bytes = LLAMA2_70B.tiles * tile_bytes(Q4.format, 1.0)
    yield Ours("next token", "SPR HBM", token_time("Llama2-70B", "software", Q4, 1, weights))
    deca = token_time("Llama2-70B", "DECA", Q4, 1, weights)
    yield Ours("next token", "SPR HBM + DECA", deca)
    for column, name in track(list(GPUS.items()), "GPUs"):
        source = f"no such GPU here; the repository that the paper cites has {_TOKENS[column]} tokens/s"
        yield Ours("next token", column, None, note=source)
        bound = 1e3 * bytes / read_machine(name).memory.bandwidth
        yield Ours("next token, memory alone", column, bound, "ms", "reading the weights once, no less", "model")
    spr, h100 = read_machine("spr-hbm"), read_machine("h100-80gb-pcie")
    yield Ours("DECA over H100", "next token", deca / 38, note="over the paper's 38 ms")
    yield Ours("H100 over SPR", "bandwidth", h100.memory.bandwidth / spr.memory.bandwidth, origin="model")
    compute = 16 * h100.matrix_rate / (16 * spr.matrix_rate)
    yield Ours("H100 over SPR", "compute", compute, note="both in multiply-adds", origin="model")


TABLES = (
    Item("deca/table1", "Share of GeMMs in the next token, Llama2-70B", "simulated", TABLE_1, table_1,
         ("The time of all but GeMMs was fitted to this table: three constants, twelve cells.",), seconds=2),
    Item("deca/table2", "Limits of roofline and Roof-Surface, N=16, HBM", "exact", TABLE_2, table_2,
         ("The table's rooflines are those of 830 GB/s and 70 TFLOPS; section 7 has 850 GB/s, which gives 71.68: ours.",
          "Real was measured on a machine; ours is the simulated software-only system, fitted to table 4."), seconds=2),
    Item("deca/table3", "Area and power from the structures of table 3", "exact", TABLE_3, table_3,
         ("From constants of others, not from CACTI runs on these structures; none was fitted to these cells, but which"
          " were taken was decided with them in sight (docs/deca.md).",
          "Leakage is not counted: idle elements take less than 0.35 W of the 3.1, section 7 says.")),
    Item("deca/table4", "How busy memory, matrix units and decompressors are, Q8, N=1, HBM", "simulated", TABLE_4,
         table_4, ("Latencies and shares were fitted to this table and table 5.",)),
    Item("deca/table5", "Prefetching, MXFP4, N=4, HBM", "simulated", TABLE_5, table_5,
         ("Counts are scaled to the paper's 90 million misses. Latencies were fitted to this table and table 4.",
          "Where a page begins, degree 1 is later than its tiles: two of 16, as many as the L2 prefetcher misses.",
          "Degree 15 loses a tenth of its speed in the table with 1 % more misses; here it takes misses to lose any.")),
    Item("deca/table6", "Next token of Llama2-70B and OPT-66B, HBM", "simulated", TABLE_6, table_6,
         ("No constant was fitted to this table.",
          "Section 12.2 has tiles decompressed once for 64 rows, but here 64 rows take about 4 times as long as 16."),
         seconds=4),
    Item("deca/table7", "CPU, CPU with DECA, and GPUs: 4-bit weights, Llama2-70B, N=1", "simulated", TABLE_7, table_7,
         ("The table's 72 TFLOPS count a multiply-add as one and its GPUs' as two: 14x is 6.9x in the same units.",
          "Its 989 TFLOPS are those of the H100's SXM card, its 2000 GB/s of the PCIe card, which has 756 TFLOPS.",
          "The repository that it cites has 58.8, 38.9 and 38.6 ms for the GPUs, by the tokens a second it prints.")),
)  # fmt: skip
