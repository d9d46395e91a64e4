"""Records of every family, few of each, and names that a page must not take for HTML."""

from tilepress.records import Record, Reproduction

HERE, THERE = "Neoverse-N1, 2 CPUs", "Xeon <b>, 16 CPUs"
HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>\"&lt;|*x*"


def records(command, *figures, machine=HERE, origin="measured"):
    """Records of one command; a figure is (metric, value[, unit[, labels]])."""
    return [record(command, *figure, machine=machine, origin=origin) for figure in figures]


def record(command, metric, value, unit="", labels=None, *, machine=HERE, origin="measured"):
    return Record(metric, labels or {}, value, unit, origin, machine, command)


def evaluated(model, perplexity, kl):
    on = {"model": model, "text": "wikitext2"}
    return records(
        "tilepress eval out --against base --json",
        ("perplexity", perplexity, "", on),
        ("perplexity", 0.5, "", {**on, "statistic": "standard_error"}),
        ("reference_perplexity", 15.25, "", on),
        ("kl_divergence", kl, "nat", on),
    )


def sizes(command, **models):
    return records(command, *(("size", size, "B", {"model": model}) for model, size in models.items()))


def quality():
    command = "tilepress compress base -o out --json"
    return [
        *evaluated("int4", 20.5, 0.3125),
        *evaluated("bf8", 15.75, 0.0625),
        *records(command, ("source_size", 5.4e8, "B", {"model": "int4"})),
        *sizes(command, int4=1.7e8, bf8=2.2e8),
    ]


def demonstrated():
    figures = []
    for name, size, perplexity, decode in (("int4", 1.7e8, 15.5, 110.0), ("base", 5.4e8, 15.25, 17.5)):
        model = {"model": name}
        figures += [("size", size, "B", model), ("perplexity", perplexity, "", model)]
        figures += [
            ("decode", decode, "token/s", model),
            ("decode", 1.5, "token/s", {**model, "statistic": "standard_deviation"}),
        ]
        figures += [
            ("run_by", "Tilepress" if name == "int4" else "transformers", "", model),
            ("text", f"{name} says <this>", "", model),
        ]
    figures += [("kl_divergence", 0.01, "nat", {"model": "int4"}), ("decode", 80.0, "token/s", {"model": "llama.cpp"})]
    return records("tilepress demo --json", *figures)


def decoding():
    at = {"depth": 121, "batch": 1}
    int4 = {"model": "int4", **at}
    return records(
        "tilepress bench model int4 --json",
        ("decode", 114.5, "token/s", int4),
        ("decode", 0.75, "token/s", {**int4, "statistic": "standard_deviation"}),
        ("decode_speedup", 0.8125, "x", {**int4, "peer": "llama.cpp Q4_0"}),
        ("decode_speedup", 6.25, "x", {**int4, "peer": "transformers"}),
        ("decode", 141.0, "token/s", {"library": "llama.cpp Q4_0", **at}),
        ("decode", 18.25, "token/s", {"library": "transformers", **at}),
    )


def served():
    """At two loads; only one has a prefix."""
    figures = []
    for load, seconds in (({"rate": 2.5}, 0.5), ({"concurrency": 8, "prefix": 96}, 0.25)):
        at = {"model": "int4", **load, "prompt": "128-512", "tokens": 64}
        figures += [("answer_rate", 16 / seconds, "token/s", at), ("preemptions", 3, "", at)]
        figures += [
            ("time_to_first_token", seconds * scale, "s", {**at, "statistic": statistic})
            for statistic, scale in (("p50", 1), ("p99", 4))
        ]
    return records("tilepress bench serve int4 --json", *figures)


def layers(machine=HERE):
    at = {"shape": "64x32", "batch": 1}
    int4 = {"format": "int4:g32", "density": 1.0, "activations": "int8", **at}
    figures = [("read_bandwidth", 36.0, "GB/s", at)]
    for index, labels in enumerate((int4, {"library": "torch float32", **at})):
        figures += [("time", 1.5 + 4 * index, "us", labels), ("share_of_read_bandwidth", 0.875 - index / 2, "", labels)]
    figures.append(("speedup", 3.625, "x", {**int4, "peer": "torch float32"}))
    figures.append(("predicted_bound", "memory", "", int4))
    return records("tilepress bench linear --json", *figures, machine=machine)


def roofs():
    rates = {"memory": 8.5e11, "vector": 2.8e11, "matrix": 8.75e9}
    figures = []
    for format, density, memory, vector in (("mxfp4", 1.0, 272.0, 195.0), ("bf8", 0.2, 166.4, 142.0)):
        kernel = {"target": "spr-hbm", "format": format, "density": density}
        demands = {"memory": memory, "vector": vector, "matrix": 1.0}
        limits = {domain: rates[domain] / demand for domain, demand in demands.items()}
        bound = min(limits, key=limits.get)
        for domain, demand in demands.items():
            figures.append(("demand", demand, "", {**kernel, "domain": domain}))
            figures.append(("limit", limits[domain], "tile/s", {**kernel, "domain": domain}))
        figures += [("bound_by", bound, "", kernel), ("rate", 512 * limits[bound] / 1e12, "TFLOPS", kernel)]
    return records("tilepress roofsurface --machine spr-hbm --json", *figures, origin="model")


def measured(machine=HERE, rows=1, isa="neon_dotprod", features="asimd asimddp"):
    figures = [
        ("cpu_cores", 2, "cores"),
        ("cpu_frequency", 2.5, "GHz"),
        ("active_isa", isa),
        ("cpu_features", features),
    ]
    figures += [("read_bandwidth", rate, "GB/s", {"threads": threads}) for threads, rate in ((1, 18.5), (2, 36.5))]
    figures += [("vector_rate", 10.0, "Goperation/s"), ("matrix_rate", 0.3125, "Goperation/s"), ("matrix_rows", rows)]
    return records("tilepress doctor --json", *figures, machine=machine)


def search():
    model = {"model": "base"}
    steps = [("4,4,4,4", 1093.0, False), ("8,8,8,8", 0.25, True), ("8,7,8,7", 0.75, True)]
    figures = [("loss", 0.75, "%", model), ("activations", "anda:8,7,8,7", "", model)]
    for number, (mantissas, loss, accepted) in enumerate(steps, 1):
        step = {**model, "step": number}
        figures += [("mantissas", mantissas, "", step), ("loss", loss, "%", step), ("accepted", accepted, "", step)]
    return records("tilepress search base --json", *figures)


def searched():
    """As `search` records it now: with the tolerance, and what each step saves."""
    model, savings = {"model": "base"}, [4.0, 2.0, 2.125]
    steps = [("bops_saving", value, "x", {**model, "step": number}) for number, value in enumerate(savings, 1)]
    return [*search(), *records("tilepress search base --json", ("tolerance", 1.0, "%", model), *steps)]


def side_by_side():
    """Two designs at two lengths, and two points of formats with the errors of their losses."""
    figures = []
    for design, mapping, scale in (("anda", "best", 1.0), ("deca", None, 4.0)):
        for tokens in (2048, 8192):
            run = {"design": design, **({"mapping": mapping} if mapping else {})}
            run |= {"model": "llama-13b", "stage": "decode", "tokens": tokens}
            figures += [("time", scale * tokens / 64, "ms", run), ("energy", scale * tokens / 128, "mJ", run)]
    for design, activations, loss, energy, best in (
        ("anda", "8,8", 0.25, 30.0, True),
        ("figna", "16", 0.0, 90.0, False),
    ):
        at = {"design": design, "activations": activations, "kv": "a"}
        figures += [("loss", loss, "%", at), ("loss", 0.0625, "%", {**at, "statistic": "standard_error"})]
        figures += [("energy", energy, "mJ", at), ("on_front", best, "", at)]
    return records("tilepress simulate compare --json", *figures, origin="simulated")


def simulated():
    run = {"target": "spr-hbm", "system": "deca:w32:l8", "format": "bf8", "density": 0.3}
    busy = {"memory": 92.5, "matrix": 41.25, "decompressor": 71.5}
    figures = [("busy", share, "%", {**run, "part": part}) for part, share in busy.items()]
    figures += [
        ("stall", 3.5, "cycle", {**run, "cause": "memory"}),
        ("stall", 1.25, "cycle", {**run, "cause": "cache"}),
    ]
    for tile in range(3):
        for step, (first, cycles) in {"waiting for memory": (0, 90), "in the decompressor": (95, 17)}.items():
            at = {**run, "tile": tile, "step": step}
            figures += [("start", first + 40 * tile, "cycle", at), ("cycles", cycles, "cycle", at)]
    return records("tilepress simulate deca --trace 3 --json", *figures, origin="simulated")


def arrays():
    run = {"design": "anda", "model": "llama-13b", "stage": "prefill", "tokens": 2048, "batch": 1}
    parts = [("energy", joules, "mJ", {**run, "part": part}) for part, joules in (("compute", 12.5), ("DRAM", 17.5))]
    figures = [("energy", 30.0, "mJ", run), *parts, ("area", 2.125, "mm2", run)]
    return records("tilepress simulate array anda --json", *figures, origin="simulated")


def synthesised():
    """Elements of five widths, one of them with two numbers of tables; and a unit of its own."""
    figures = [
        (metric, value, unit, {"unit": "deca-pe", "W": str(width), "L": str(tables), "library": "cells"})
        for width, tables in ((16, 1), (2, 1), (4, 1), (8, 1), (8, 4))
        for metric, value, unit in (("area", 128.0 * width + tables, "of the library"), ("delay", 512.0 + width, "ps"))
    ]
    alone = ("cells", 1024, "", {"unit": "fp-fp", "weight_bits": "4", "library": "cells"})
    return records("tilepress rtl synth x --json", *figures, alone, origin="model")


def energies():
    """A unit with four mantissas, and one whose operation is alone."""
    conditions = {"slew": 20.0, "clock": 512.0, "node": 7, "data": "random"}
    apu = {"unit": "anda-apu", "mantissa": "16", "library": "cells", "operation": "a group of 64 products"}
    lone = {"unit": "fp-fp", "weight_bits": "4", "library": "cells", "operation": "a product", "case": "linear"}
    figures = [
        (metric, value, unit, apu | conditions | {"case": f"m={bits}"} | more)
        for bits in (10, 2, 4, 8)
        for metric, value, unit, more in (
            ("energy", 3.0 * bits, "pJ", {}),
            ("energy_per_item", 3.0 * bits / 64, "pJ", {"item": "product"}),
            ("energy_combinational", 2.0 * bits, "pJ", {}),
            ("energy_clock", 1.0 * bits, "pJ", {}),
            ("cycles", bits + 1.0, "", {}),
        )
    ]
    figures += [("energy", 0.5, "pJ", lone | conditions), ("memory_reads", 2.0, "word", lone | conditions)]
    return records("tilepress rtl synth x --energy --json", *figures)


def reproduction(item, row, column, value, paper=None, deviation=None, state=None, unit="%", note="", evidence=None):
    command = f"tilepress reproduce {item}"
    compared = (item, row, column, paper, deviation, state, evidence or ("held-out" if state else None), note)
    return Reproduction("reproduction", {}, value, unit, "measured", HERE, command, *compared)


def reproductions():
    return [
        *(reproduction("anda/fig7", row, f"m{m}", 64.0 / m**2) for row in ("qkv", "o") for m in (4, 5, 6)),
        *(reproduction("harmonia/fig5", "smollm2", f"m{m}", 100 - 50 / m, 99.0, -1.5, "matches") for m in (4, 6, 8)),
        reproduction("anda/table3", "MXU", "area", 0.5, 0.4, 0.25, "deviates", "mm2", evidence="fitted"),
        reproduction("anda/table3", "BPC", "area", 0.0625, 0.0625, 0.0, "matches", "mm2", evidence="chosen"),
        reproduction("deca/table4", "HBM", "AVX", None, 50.0, None, "not possible here", note=HOSTILE),
        reproduction("deca/table4", HOSTILE, "MEM", 74.0, 72.0, 2.0, "deviates"),
    ]


def hostile():
    return [
        record(HOSTILE, HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, machine=HOSTILE),
        *evaluated(HOSTILE, 99.5, 0.5),
        *sizes("tilepress compress x", **{HOSTILE: 1e8}),
    ]


def everything():
    families = (
        quality,
        decoding,
        served,
        layers,
        roofs,
        searched,
        simulated,
        arrays,
        side_by_side,
        synthesised,
        energies,
        reproductions,
        hostile,
    )
    return [*(one for family in families for one in family()), *layers(THERE)]
