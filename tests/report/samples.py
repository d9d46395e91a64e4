"""Records of every family, few of each, and names that a page must not take for HTML."""

from tilepress.records import Record, Reproduction

HERE, THERE = "Neoverse-N1, 2 CPUs", "Xeon <b>, 16 CPUs"
HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>\"&lt;|*x*"


def made(command, machine=HERE, origin="measured", **figures):
    """Records of one command; a figure is value or (value, unit), and __ stands for a dot in its name."""
    return named(command, {name.replace("__", "."): value for name, value in figures.items()}, machine, origin)


def named(command, figures, machine=HERE, origin="measured"):
    pairs = {name: value if isinstance(value, tuple) else (value, "") for name, value in figures.items()}
    return [Record(name, value, unit, origin, machine, command) for name, (value, unit) in pairs.items()]


def evaluated(model, perplexity, kl):
    return named(
        "tilepress eval out --against base --json",
        {
            f"{model}.wikitext2.perplexity": perplexity,
            f"{model}.wikitext2.perplexity.error": 0.5,
            f"{model}.wikitext2.reference_perplexity": 15.25,
            f"{model}.wikitext2.kl_divergence": (kl, "nat"),
        },
    )


def quality():
    sizes = {"int4.size.before": (5.4e8, "B"), "int4.size.after": (1.7e8, "B"), "bf8.size.after": (2.2e8, "B")}
    return [
        *evaluated("int4", 20.5, 0.3125),
        *evaluated("bf8", 15.75, 0.0625),
        *named("tilepress compress base -o out --json", sizes),
    ]


def demonstrated():
    figures = {}
    for name, size, perplexity, decode in (("base", 5.4e8, 15.25, 17.5), ("int4", 1.7e8, 16.5, 110.0)):
        figures |= {f"{name}.size": (size, "B"), f"{name}.perplexity": perplexity}
        figures |= {f"{name}.decode": (decode, "token/s"), f"{name}.decode.predicted": (2 * decode, "token/s")}
    return named("tilepress demo --json", figures)


def decoding():
    figures = {
        "int4.decode.depth_121.batch_1": (114.5, "token/s"),
        "int4.decode.depth_121.batch_1.sigma": (0.75, "token/s"),
        "int4.decode.depth_121.batch_1.over.llama.cpp Q4_0": (0.8125, "x"),
        "int4.decode.depth_121.batch_1.over.transformers": (6.25, "x"),
        "llama.cpp Q4_0.decode.depth_121.batch_1": (141.0, "token/s"),
        "transformers.decode.depth_121.batch_1": (18.25, "token/s"),
    }
    return named("tilepress bench model int4 --json", figures)


def layers(machine=HERE):
    figures = {"read_bandwidth.64x32.b1": (36.0, "GB/s")}
    for index, name in enumerate(("int4:g32+int8", "torch float32")):
        figures |= {
            f"{name}.64x32.b1.time": (1.5 + 4 * index, "us"),
            f"{name}.64x32.b1.share_of_read_bandwidth": 0.875 - index / 2,
        }
    figures["int4:g32+int8.64x32.b1.over.torch float32"] = (3.625, "x")
    figures["int4:g32+int8.64x32.b1.predicted_bound"] = "memory"
    return named("tilepress bench linear --json", figures, machine)


def roofs():
    rates = {"memory": 8.5e11, "vector": 2.8e11, "matrix": 8.75e9}
    figures = {}
    for kernel, memory, vector in (("mxfp4@100%", 272.0, 195.0), ("bf8@20%", 166.4, 142.0)):
        demands = {"memory": memory, "vector": vector, "matrix": 1.0}
        limits = {domain: rates[domain] / demand for domain, demand in demands.items()}
        bound = min(limits, key=limits.get)
        for domain, demand in demands.items():
            figures[f"spr-hbm.{kernel}.{domain}.demand"] = demand
            figures[f"spr-hbm.{kernel}.{domain}.limit"] = (limits[domain], "tile/s")
        figures[f"spr-hbm.{kernel}.bound_by"] = bound
        figures[f"spr-hbm.{kernel}.rate"] = (512 * limits[bound] / 1e12, "TFLOPS")
    return named("tilepress roofsurface --machine spr-hbm --json", figures, origin="model")


def measured(machine=HERE, rows=1, isa="neon_dotprod", features="asimd asimddp"):
    figures = {"cpu.cores": (2, "cores"), "cpu.frequency": (2.5, "GHz"), "isa.active": isa, "cpu.features": features}
    figures |= {"read_bandwidth.threads_1": (18.5, "GB/s"), "read_bandwidth.threads_2": (36.5, "GB/s")}
    figures |= {"vector_rate": (10.0, "Goperation/s"), "matrix_rate": (0.3125, "Goperation/s"), "matrix_rows": rows}
    return named("tilepress doctor --json", figures, machine)


def search():
    steps = [("4,4,4,4", 1093.0, False), ("8,8,8,8", 0.25, True), ("8,7,8,7", 0.75, True)]
    figures = {"loss": (0.75, "%"), "activations": "anda:8,7,8,7"}
    for number, (mantissas, loss, accepted) in enumerate(steps, 1):
        figures |= {f"step.{number}.mantissas": mantissas, f"step.{number}.loss": (loss, "%")}
        figures[f"step.{number}.accepted"] = accepted
    return named("tilepress search base --json", figures)


def simulated():
    start = "spr-hbm.deca:w32:l8.bf8@30%"
    figures = {f"{start}.memory": (92.5, "%"), f"{start}.matrix": (41.25, "%"), f"{start}.decompressor": (71.5, "%")}
    figures |= {f"{start}.stall.memory": (3.5, "cycle"), f"{start}.stall.cache": (1.25, "cycle")}
    for tile in range(3):
        for step, (first, cycles) in {"waiting for memory": (0, 90), "in the decompressor": (95, 17)}.items():
            figures[f"{start}.tile.{tile}.{step}.start"] = (first + 40 * tile, "cycle")
            figures[f"{start}.tile.{tile}.{step}.cycles"] = (cycles, "cycle")
    return named("tilepress simulate deca --trace 3 --json", figures, origin="simulated")


def arrays():
    start = "anda.llama-13b.prefill_2048.batch_1"
    figures = {f"{start}.energy": (30.0, "mJ"), f"{start}.energy.compute": (12.5, "mJ")}
    figures |= {f"{start}.energy.DRAM": (17.5, "mJ"), f"{start}.area": (2.125, "mm2")}
    return named("tilepress simulate array anda --json", figures, origin="simulated")


def reproduction(item, row, column, value, paper=None, deviation=None, state=None, unit="%", note=""):
    name, command = f"{item}.{row}.{column}", f"tilepress reproduce {item}"
    return Reproduction(
        name, value, unit, "measured", HERE, command, item, row, column, paper, deviation, state, note
    )  # fmt: skip


def reproductions():
    return [
        *(reproduction("anda/fig7", row, f"m{m}", 64.0 / m**2) for row in ("qkv", "o") for m in (4, 5, 6)),
        *(reproduction("harmonia/fig5", "smollm2", f"m{m}", 100 - 50 / m, 99.0, -1.5, "matches") for m in (4, 6, 8)),
        reproduction("anda/table3", "MXU", "area", 0.5, 0.4, 0.25, "deviates", "mm2"),
        reproduction("anda/table3", "BPC", "area", 0.0625, 0.0625, 0.0, "matches", "mm2"),
        reproduction("deca/table4", "HBM", "AVX", None, 50.0, None, "not possible here", note=HOSTILE),
        reproduction("deca/table4", HOSTILE, "MEM", 74.0, 72.0, 2.0, "deviates"),
    ]


def hostile():
    return [
        *named(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),
        *evaluated(HOSTILE, 99.5, 0.5),
        *named("tilepress compress x", {f"{HOSTILE}.size.after": (1e8, "B")}),
    ]


def everything():
    families = (quality, decoding, layers, roofs, search, simulated, arrays, reproductions, hostile)
    return [*(one for family in families for one in family()), *layers(THERE)]
