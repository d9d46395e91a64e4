"""The families of records that a report has tables and plots of."""

from collections.abc import Mapping

from ..records import Label
from .families import Family, label_text


def _weights(labels: Mapping[str, Label]) -> str:
    """As `bench linear` takes them: int4:g32@50%+int8; a library by its name."""
    if "format" not in labels:
        return str(labels["library"])
    density = f"@{100 * float(labels['density']):g}%" if labels["density"] != 1 else ""
    activations = f"+{labels['activations']}" if labels["activations"] != "float" else ""
    return f"{labels['format']}{density}{activations}"


def _kernel(labels: Mapping[str, Label]) -> str:
    return f"{labels['format']}@{100 * float(labels['density']):g}%"


def _model(labels: Mapping[str, Label]) -> str:
    """With how it was pruned; a library by its name."""
    return str(labels["library"]) if "library" in labels else f"{labels['model']} {labels.get('prune', '')}".rstrip()


def _with_cache(labels: Mapping[str, Label]) -> str:
    return f"{_model(labels)}, kv {labels['kv']}" if "kv" in labels else _model(labels)


def _coming(labels: Mapping[str, Label]) -> str:
    return f"{labels['rate']:g} a second" if "rate" in labels else f"{labels['concurrency']} at a time"


def _task(labels: Mapping[str, Label]) -> str:
    """LLaMA-13B, prefill 2048, batch 1; or formats."""
    named = {"batch": "batch ", "kv": "KV "}
    stage = [f"{labels['stage']} {labels['tokens']}"] if "stage" in labels else []
    rest = [f"{named.get(name, '')}{label_text(labels[name])}" for name in _TASK[3:] if name in labels]
    return ", ".join([*([str(labels["model"])] if "model" in labels else []), *stage, *rest])


def _settings(labels: Mapping[str, Label]) -> str:
    return " ".join(f"{name}={label_text(labels[name])}" for name in SETTINGS if name in labels)


def _operation(labels: Mapping[str, Label]) -> str:
    return str(labels["operation"])


def _conditions(labels: Mapping[str, Label]) -> str:
    """20 ps slews, 3509 ps, 7 nm, smollm2-135m"""
    units = {"slew": " ps slews", "clock": " ps", "node": " nm", "data": ""}
    return ", ".join(f"{label_text(labels[name])}{unit}" for name, unit in units.items() if name in labels)


_TASK = ("model", "stage", "tokens", "batch", "mapping", "product", "activations", "kv")
SHARE_OF_READ = "share of the read bandwidth"
SHARE = {"share_of_read_bandwidth": SHARE_OF_READ}
WEIGHTS = ("format", "density", "activations", "library")
QUALITY = Family(
    "Quality",
    (
        "perplexity", "reference_perplexity", "perplexity_ratio", "kl_divergence", "same_top1", "accuracy",
        "accuracy_normalised", "accuracy_difference", "accuracy_normalised_difference", "same_verdict", "acc",
        "acc_difference", "acc_norm", "acc_norm_difference", "exact_match", "exact_match_difference", "tokens", "items",
    ),
    {"model": ("model", "prune"), "on": ("text", "task"), "activations": ("activations",), "kv": ("kv",),
     "smoothing": ("smoothing",)},
    optional=("activations", "kv", "smoothing"),
    headings={"same_top1": "same top-1 token", "kl_divergence": "KL divergence", "kv": "KV cache",
              "accuracy_normalised": "accuracy, normalised"},
    texts={"model": _model},
)  # fmt: skip
COMPRESSED = Family(
    "What was compressed",
    (
        "source_size", "size", "compression", "bits_per_weight", "time", "search_activations", "search_loss",
        "search_bops_saving", "search_time",
    ),
    {"model": ("model", "prune")},
    headings={"compression": "times smaller", "source_size": "size before", "size": "size after", "command": "by"},
    texts={"model": _model},
    command="tilepress compress",
    by_command=True,
)  # fmt: skip
DEMO = Family(
    "The demonstration",
    ("run_by", "size", "perplexity", "kl_divergence", "same_top1", "prefill", "decode", "predicted_decode"),
    {"model": ("model",)},
    headings={"kl_divergence": "KL divergence", "same_top1": "same top-1 token",
              "predicted_decode": "decode, predicted"},
    command="tilepress demo",
)  # fmt: skip
SAMPLES = Family("What they write", ("text",), {"model": ("model",)}, command="tilepress demo")
MODELS = Family(
    "Whole models",
    ("prefill", "decode", "bytes_read", "share_of_read_bandwidth", "prefill_speedup", "decode_speedup"),
    {"model": ("model", "prune", "library", "kv"), "depth": ("depth", "prompt"), "batch": ("batch",)},
    columns=("peer",),
    headings={"depth": "tokens before", "bytes_read": "read a step", **SHARE},
    texts={"model": _with_cache},
)
LARGE = Family(
    "Models of large shapes",
    ("prefill", "decode", "prefill_speedup", "decode_speedup"),
    {"model": ("model",), "layers": ("layers",), "weights": WEIGHTS},
    columns=("peer",),
    headings={"weights": "weights + activations"},
    texts={"weights": _weights},
)
LINEAR = Family(
    "Linear layers",
    (
        "time", "rate", "share_of_read_bandwidth", "kernel", "speedup", "least_time", "predicted_time",
        "predicted_bound", "time_over_prediction",
    ),
    {"weights": WEIGHTS, "shape": ("shape",), "batch": ("batch",)},
    columns=("peer",),
    headings={"weights": "weights + activations", "rate": "weights read", **SHARE},
    texts={"weights": _weights},
)  # fmt: skip
PACKING = Family(
    "Packing and unpacking",
    ("pack_time", "unpack_time", "size", "peak_memory_over_size"),
    {"format": ("format",), "shape": ("shape",), "density": ("density",)},
)
ATTENTION = Family(
    "Attention over a cache",
    ("time", "size", "rate", "share_of_read_bandwidth", "speedup"),
    {"cache": ("kv", "library"), "heads": ("heads",), "depth": ("depth",)},
    columns=("peer",),
    headings={"depth": "tokens in the cache", "rate": "cache read", **SHARE},
)
PROMPTS = Family(
    "Attention of prompts",
    ("time", "size", "speedup"),
    {"cache": ("kv", "library"), "heads": ("heads",), "prompt": ("prompt",)},
    columns=("peer",),
    headings={"prompt": "tokens of the prompt"},
)
LOAD = {"model": ("model",), "kv": ("kv",), "load": ("rate", "concurrency"), "prompt": ("prompt",),
        "tokens": ("tokens",), "prefix": ("prefix",)}  # fmt: skip
LATENCIES = Family(
    "Latencies of requests that are served together",
    ("time_to_first_token", "time_between_tokens", "time_per_output_token", "request_time"),
    LOAD,
    optional=("kv", "prefix"),
    headings={"tokens": "tokens of an answer", "prefix": "tokens shared"},
    texts={"load": _coming},
)
SERVING = Family(
    "Requests that are served together",
    (
        "requests", "time", "request_rate", "prompt_rate", "answer_rate", "steps", "scheduling_share", "prefix_tokens",
        "preemptions", "most_pages", "pages",
    ),
    LOAD,
    optional=("kv", "prefix"),
    headings={"tokens": "tokens of an answer", "prefix": "tokens shared"},
    texts={"load": _coming},
)  # fmt: skip
MACHINES = Family(
    "Machines",
    (
        "cpu_model", "cpu_cores", "cpu_frequency", "last_level_cache", "active_isa", "read_bandwidth", "vector_rate",
        "matrix_rate", "matrix_rows", "version",
    ),
    columns=("package", "threads"),
    headings={"cpu_model": "CPU", "cpu_cores": "CPU cores", "cpu_frequency": "CPU frequency",
              "active_isa": "active ISA"},
    command=("tilepress doctor", "tilepress demo"),
)  # fmt: skip
KERNEL = ("format", "density")
ROOFS = Family(
    "Kernels on the Roof-Surface",
    ("demand", "limit", "bound_by", "headroom", "rate", "roofline", "weights_read", "speedup_instead"),
    {"target": ("target",), "kernel": KERNEL},
    columns=("domain",),
    headings={"target": "machine", "kernel": "weights @ density", "rate": "Roof-Surface", "speedup_instead": "instead",
              "command": "by"},
    texts={"kernel": _kernel},
    by_command=True,
)  # fmt: skip
ENGINES = Family(
    "DECA and software, simulated",
    (
        "time", "rate", "rate_least", "rate_most", "cycles_per_tile", "closed_form_cycles_per_tile", "busy", "stall",
        "lines", "squashed", "area", "power", "next_token_time", "next_token_gemm_time",
    ),
    {"target": ("target",), "system": ("system",), "kernel": KERNEL},
    columns=("part", "cause", "requester", "stage", "model"),
    headings={"target": "machine", "kernel": "weights @ density"},
    texts={"kernel": _kernel},
)  # fmt: skip
TILES = Family(
    "First tiles of a core",
    ("start", "cycles"),
    {"target": ("target",), "system": ("system",), "kernel": KERNEL, "tile": ("tile",)},
    columns=("step",),
    texts={"kernel": _kernel},
)
ARRAYS = Family(
    "Accelerators, simulated",
    ("time", "rate", "utilisation", "dram", "power", "energy", "area", "bound"),
    {"design": ("design",), "task": _TASK},
    columns=("part",),
    texts={"task": _task},
    command="tilepress simulate array",
)
SIDE_BY_SIDE = Family(
    "Accelerators side by side",
    ("time", "energy", "area", "loss", "on_front"),
    {"design": ("design",), "logic": ("logic",), "task": _TASK},
    columns=("part",),
    optional=("logic",),
    texts={"task": _task},
    command="tilepress simulate compare",
)
UNITS = Family(
    "Units, cycle by cycle",
    ("cycles", "formula_cycles", "total", "equal", "events", "waiting"),
    {"unit": ("unit",), "mantissa": ("mantissa",), "mode": ("mode",), "path": ("path",), "sums": ("sums",),
     "top": ("top",), "format": ("format",), "density": ("density",), "engine": ("engine",), "tiles": ("tiles",)},
    columns=("event", "cause"),
    optional=("mantissa", "mode", "path", "sums", "top", "format", "density", "engine", "tiles"),
    headings={"formula_cycles": "cycles by the formula", "equal": "every bit is right"},
)  # fmt: skip
# Parameters of units, as `tilepress rtl` takes them.
SETTINGS = (
    "W", "L", "lanes", "mantissa", "weight_format", "activation_bits", "weight_bits", "coefficient_bits", "sum_bits",
    "intermediate", "scale", "group", "rows", "columns", "channels", "top", "formats", "sqq_lines", "address_bits",
    "epoch_bits", "size", "clocks",
)  # fmt: skip
SYNTHESIS = Family(
    "Units as they were synthesised",
    ("cells", "flip_flops", "clock_gates", "memory_bits", "area", "delay", "levels"),
    {"unit": ("unit",), "library": ("library",), "parameters": SETTINGS},
    optional=("library", "parameters"),
    headings={"delay": "longest path", "levels": "gates on the longest path"},
    texts={"parameters": _settings},
    command="tilepress rtl synth",
)
ENERGIES = Family(
    "Energies of operations",
    (
        "energy", "energy_per_item", "energy_combinational", "energy_registers", "energy_clock", "energy_ports",
        "energy_leakage", "energy_memories", "cycles", "memory_reads", "memory_writes",
    ),
    {"unit": ("unit",), "library": ("library",), "parameters": SETTINGS, "case": ("case",),
     "operation": ("operation", "item"), "conditions": ("slew", "clock", "node", "data")},
    optional=("library", "parameters"),
    headings={"energy_per_item": "a product or value"}
    | {f"energy_{part}": part for part in ("combinational", "registers", "clock", "ports", "leakage", "memories")},
    texts={"parameters": _settings, "operation": _operation, "conditions": _conditions},
    command="tilepress rtl synth",
)  # fmt: skip
SEARCH = Family(
    "Search for mantissas",
    (
        "activations", "tolerance", "within_tolerance", "iterations", "reference_perplexity", "perplexity", "loss",
        "bops_saving", "time",
    ),
    {"model": ("model",)},
    columns=("method",),
    headings={"bops_saving": "times fewer bit operations", "reference_perplexity": "perplexity before",
              "command": "by"},
    command="tilepress search",
    by_command=True,
)  # fmt: skip
SCHEMES = Family(
    "Formats of activations",
    ("perplexity", "loss", "bops_saving"),
    {"model": ("model",), "text": ("text",), "scheme": ("scheme",)},
    headings={"bops_saving": "times fewer bit operations", "command": "by"},
    by_command=True,
)
STEPS = Family(
    "Steps of a search",
    ("mantissas", "loss", "bops_saving", "accepted"),
    {"model": ("model",), "step": ("step",)},
    by_command=True,
)
FAMILIES = (
    ARRAYS, ATTENTION, COMPRESSED, DEMO, ENERGIES, ENGINES, LARGE, LATENCIES, LINEAR, MACHINES, MODELS, PACKING,
    PROMPTS, QUALITY, ROOFS, SAMPLES, SCHEMES, SEARCH, SERVING, SIDE_BY_SIDE, STEPS, SYNTHESIS, TILES, UNITS,
)  # fmt: skip
