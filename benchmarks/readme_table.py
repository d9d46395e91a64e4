"""`make readme`: put the table that `tilepress formats --markdown` prints, the speeds that `make bench` kept, what
`benchmarks/quality.py` kept and the studies of `tilepress reproduce` into README.md and docs, each with the files that
it is made of. What was never measured has no table."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from kept_results import RESULTS, Reader, Values
from kept_results import ROOT as FROM_PAGE
from tilepress.bench.linear import Contestant, parse_contestant
from tilepress.formats import parse_weight
from tilepress.records import Label, Labels

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md"]
PAGES += [ROOT / f"docs/{name}.md" for name in ("choose-a-format", "measured", "quality", "anda", "harmonia")]
FORMATS = "<!-- tilepress formats --markdown -->\n"
BESIDE, PACKING, SPEEDS = "<!-- beside others -->\n", "<!-- packing -->\n", "<!-- speeds -->\n"
READS = "<!-- read bandwidths -->\n"
TRAINED = "<!-- trained -->\n"
QUALITY, MODELS, LARGE = "<!-- quality -->\n", "<!-- models -->\n", "<!-- llama3-8b -->\n"
DEEP_MODELS = "<!-- models at depth -->\n"
ANDA, ABLATION = "<!-- anda/table2 -->\n", "<!-- harmonia/ablation -->\n"
END = "<!-- end -->\n"

SHAPE = "14336x4096"
MACHINES = {  # part of a result file's name: what to call the machine, and the peer to hold against
    "neoverse-n1": ("2-core Neoverse-N1", "torch KleidiAI int4:g32"),
    "xeon": ("16-core Xeon with AMX", "torch bfloat16"),
}
ENTRANTS = ["int4:g32+int8", "int4:g32", "mxfp4", "e4m3", "bf16@50%", "int8:row+int8", "int8:row@50%+int8"]
ENTRANTS += ["int4:g32+bfp:g32:m7", "int4:g32+bfp:g32:m8"]
BATCHES = [1, 4, 16, 512]
DEPTH, DEEP = 121, 1024  # of the models' tables: the prompt of `tilepress bench model`, and many tokens


def formats_table(reader: Reader) -> str:
    command = [sys.executable, "-m", "tilepress", "formats", "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packing_table(reader: Reader) -> str:
    """Packing and unpacking at 50 % density on both machines."""
    machines = {machine: reader.latest(part) for part, (machine, _) in MACHINES.items()}
    lines = [["format", *(f"{machine}: {what}" for machine in machines for what in ("pack", "unpack"))]]
    lines[0] += ["size", "peak memory, 2 cores"]
    lines.append(["---", *["---:"] * 6])
    first = next(iter(machines.values()))
    for format in ["int4:g32", "int8:row", "mxfp4", "e4m3", "bf16"]:
        matrix = Labels(format=format, shape=SHAPE, density=0.5)
        metrics = ("pack_time", "unpack_time")
        times = [f"{1e3 * values[metric, matrix]:.0f} ms" for values in machines.values() for metric in metrics]
        rest = [f"{first['size', matrix]:.1f} MB", f"{first['peak_memory_over_size', matrix]:.2f} ×"]
        lines.append([f"`{format}`", *times, *rest])
    return _markdown(lines)


def read_bandwidths(reader: Reader) -> str:
    """What `tilepress doctor` read on both machines, with one thread and with all."""
    clauses = []
    for part, (machine, _) in MACHINES.items():
        reads = {labels: rate for (metric, labels), rate in reader.latest(part).items() if metric == "read_bandwidth"}
        rates = {labels["threads"]: rate for labels, rate in reads.items() if "threads" in labels}
        most = max(rates)
        clauses.append(f"{rates[1]:.1f} GB/s with one thread and {rates[most]:.1f} with {most} on the {machine}")
    return textwrap.fill(f"Read bandwidth, as `tilepress doctor` measured it there: {'; '.join(clauses)}.", 120) + "\n"


def speeds_table(reader: Reader) -> str:
    """Time and ratio of every entrant on both machines, from the latest results of each."""
    batches, reads = [f"batch {batch}" for batch in BATCHES], ["% of read, batch 1", "× plain read, batch 1"]
    lines = [["machine", "weights + activations", *batches, *reads, "× of", "build"]]
    lines.append(["---", "---", *["---:"] * len([*batches, *reads]), "---", "---"])
    for part, (machine, peer) in MACHINES.items():
        values = reader.latest(part, counts=lambda command: "--shape llama3-8b" in command)
        for contestant in map(parse_contestant, ENTRANTS):
            layers = {batch: Labels({**contestant.labels, "shape": SHAPE, "batch": batch}) for batch in BATCHES}
            cells = [_time_and_speedup(values, layer, peer) for layer in layers.values()]
            share = values["share_of_read_bandwidth", layers[1]]
            over = values.get(("speedup", Labels(layers[1], peer="plain read")))
            of_read = [f"{100 * share:.0f}", f"{over:.2f}" if over else ""]
            lines.append([machine, f"`{contestant}`", *cells, *of_read, peer, values.mark])
    return _markdown(lines)


def _time_and_speedup(values: Values, layer: Labels, peer: str) -> str:
    return f"{values['time', layer] / 1e3:.2f} ms, {values['speedup', Labels(layer, peer=peer)]:.2f} ×"


def models_table(reader: Reader) -> str:
    """Prefill and decoding of whole models, ours and peers', on the machines where they were measured."""
    return _models_at(reader, DEPTH, lambda command: "--depth" not in command)


def deep_table(reader: Reader) -> str:
    """The same after many tokens, with small caches."""
    return _models_at(reader, DEEP, lambda command: "--depth" in command)


def _models_at(reader: Reader, depth: int, counts: Callable[[str], bool]) -> str:
    rows = [
        [machine, f"`{_model_name(model)}`", *_rates(values, model, depth), values.mark]
        for part, (machine, _) in MACHINES.items()
        for values in [reader.latest(part, counts=counts)]
        for model in _having(values, "decode", depth=depth, batch=1)
    ]
    head = ["machine", "model", "prefill, tokens/s", "decode, tokens/s", "MB a step", "% of read", "build"]
    return _markdown([head, ["---", "---", *["---:"] * 4, "---"], *rows]) if rows else ""


def _model_name(model: Labels) -> str:
    name = model.get("model", model.get("library"))
    return f"{name}, kv {model['kv']}" if "kv" in model else str(name)


def beside_table(reader: Reader) -> str:
    """What README opens with: ours beside the best of each other library, on each machine, and who is ahead."""
    rows = []
    for part, (machine, _) in MACHINES.items():
        small = reader.latest(part, counts=lambda command: "bench model" in command and "--depth" not in command)
        deep = reader.latest(part, counts=lambda command: "bench model" in command and "--depth" in command)
        for values, depth in ((small, DEPTH), (deep, DEEP)):
            where = f"{machine}: SmolLM2-135M"
            rows.append(_beside(f"{where}, a prompt of {depth}", values, "prefill", prompt=depth, batch=1))
            rows.append(_beside(f"{where}, after {depth}", values, "decode", depth=depth, batch=1))
        large = reader.latest(part, counts=lambda command: "llama3_8b" in command)
        for metric in ("prefill", "decode"):
            where = f"{machine}: Llama-3-8B's shape"
            what = "a prompt of 128" if metric == "prefill" else "after 128"
            rows.append(_beside(f"{where}, {what}", large, metric, model="llama3-8b", layers=32))
    head = ["what", "Tilepress", *LIBRARIES, "ahead", "build"]
    return _markdown([head, ["---", *["---:"] * (len(head) - 3), "---", "---"], *filter(None, rows)])


LIBRARIES = ("llama.cpp", "torch", "transformers")


def _beside(what: str, values: Values, metric: str, **labels: Label) -> list[str]:
    """The best of ours, then of each library; none where nothing was measured."""
    rates: dict[str, dict[str, float]] = {}
    for model in _having(values, metric, **labels):
        name = str(model.get("library", "Tilepress"))
        library = next((one for one in LIBRARIES if name.startswith(one)), "Tilepress")
        shown = _weights_name(model) if "format" in model else _model_name(model)
        if "@" in shown:
            continue  # sparse: not the quality of those beside it
        rates.setdefault(library, {})[shown] = values[metric, Labels({**labels, **model})]
    best = {library: max(of_it.items(), key=lambda item: item[1]) for library, of_it in rates.items()}
    if not best:
        return []
    cells = [f"{best[one][1]:.1f} (`{best[one][0]}`)" if one in best else "" for one in ("Tilepress", *LIBRARIES)]
    return [what, *cells, max(best, key=lambda library: best[library][1]), values.mark]


def _rates(values: Values, model: Labels, depth: int) -> list[str]:
    prefill, decode = Labels(model, prompt=depth, batch=1), Labels(model, depth=depth, batch=1)
    rates = [_with_error(values, metric, at) for metric, at in (("prefill", prefill), ("decode", decode))]
    share = values["share_of_read_bandwidth", decode]
    return [*rates, f"{values['bytes_read', decode] / 1e6:.0f}", f"{100 * share:.0f}"]


def _with_error(values: Values, metric: str, at: Labels) -> str:
    return f"{values[metric, at]:.1f} ± {values[metric, Labels(at, statistic='standard_deviation')]:.1f}"


def large_model_table(reader: Reader) -> str:
    """A model of Llama-3-8B's shape, as `benchmarks/llama3_8b.py` measured it."""
    values = reader.latest("xeon")
    rows = []
    for weights in _having(values, "decode", model="llama3-8b", layers=32):
        model = Labels({"model": "llama3-8b", "layers": 32, **weights})
        over = [_speedup(values, f"{metric}_speedup", model) for metric in ("prefill", "decode")]
        prefill, decode = (f"{values[metric, model]:.1f}" for metric in ("prefill", "decode"))
        rows.append([f"`{_weights_name(weights)}`", prefill, over[0], decode, over[1], values.mark])
    head = ["model", "prefill, tokens/s", "of transformers", "decode, tokens/s", "of transformers", "build"]
    return _markdown([head, ["---", *["---:"] * 4, "---"], *rows])


def _speedup(values: Values, metric: str, model: Labels) -> str:
    ratio = values.get((metric, Labels(model, peer="transformers bf16")))
    return "" if ratio is None else f"{ratio:.2f} ×"


def _weights_name(weights: Labels) -> str:
    if "library" in weights:
        return str(weights["library"])
    return str(Contestant(parse_weight(weights["format"]), weights["density"], weights["activations"]))


def quality_table(reader: Reader) -> str:
    """Quality where it was measured first, and the speed of decoding on every machine."""
    machines = {
        machine: values
        for part, (machine, _) in MACHINES.items()
        if (values := reader.latest(part, RESULTS / "quality"))
    }
    if not machines:
        return ""
    head = ["weights + activations", "pruned by", "perplexity", "KL, nat", "PIQA, %", "MB"]
    head += [f"tokens/s, {machine}" for machine in machines]
    models = _having(next(iter(machines.values())), "perplexity", text="wikitext2")
    rows = [_quality_row(model, *machines.values()) for model in models]
    return _markdown([head, ["---", "---", *["---:"] * (len(head) - 2)], *rows])


def _quality_row(model: Labels, values: Values, *elsewhere: Values) -> list[str]:
    source_size = next(size for (metric, _), size in values.items() if metric == "source_size")
    kl = values.get(("kl_divergence", Labels(model, text="wikitext2")))
    piqa = Labels(model, task="piqa")
    error = values["accuracy", Labels(piqa, statistic="standard_error")]
    rates = [machine.get(("decode", Labels(model, depth=DEPTH, batch=1))) for machine in (values, *elsewhere)]
    return [
        f"`{model['model']}`",
        str(model.get("prune", "")),
        f"{values['perplexity', Labels(model, text='wikitext2')]:.2f}",
        "" if kl is None else f"{kl:.4f}",
        f"{100 * values['accuracy', piqa]:.1f} ± {100 * error:.1f}",
        f"{values.get(('size', model), source_size) / 1e6:.0f}",
        *("" if rate is None else f"{rate:.1f}" for rate in rates),
    ]


def trained_table(reader: Reader) -> str:
    """What each method gives back: `benchmarks/trained.py`."""
    values = reader.numbers(RESULTS / "quality" / "trained")
    rows = [
        [
            f"`{weights}`",
            method,
            *(_ratio(values, model, text) for text in ("wikitext2", "ptb")),
            _of_model(values, model),
        ]
        for model in _having(values, "size")
        for weights, _, method in [str(model["model"]).partition(", ")]
    ]
    head = ["weights + activations", "method", "WikiText-2", "PTB", "MB, minutes on the GPU"]
    return _markdown([head, ["---", "---", *["---:"] * (len(head) - 2)], *rows]) if rows else ""


def _ratio(values: Values, model: Labels, text: str) -> str:
    labels = Labels(model, text=text)
    error = values["perplexity_ratio", Labels(labels, statistic="standard_error")]
    return f"{values['perplexity_ratio', labels]:.4f} ± {error:.4f}"


def _of_model(values: Values, model: Labels) -> str:
    return f"{values['size', model] / 1e6:.1f}, {values['time', model] / 60:.1f}"


def anda_table(reader: Reader) -> str:
    """Table II's shape on our model: `tilepress reproduce anda/table2`."""
    cells = reader.cells("anda", "anda/table2")
    rows_of = {row: row.split(", ")[1:] for row, column in cells if column == "perplexity"}
    texts = list(dict.fromkeys(text for text, _ in rows_of.values()))
    head = [
        "activations",
        *(f"{text}: {what}" for text in texts for what in ("mantissas", "perplexity", "loss", "saving")),
    ]
    rows: dict[str, list[str]] = {}
    for row, (_, scheme) in rows_of.items():
        perplexity, loss, saving = (cells[row, column] for column in ("perplexity", "loss", "BOP saving"))
        figures = [f"{perplexity.value:.2f}", f"{loss.value:.2f} %", f"{saving.value:.2f} ×"]
        rows.setdefault(scheme, [scheme]).extend([perplexity.note.removeprefix("anda:"), *figures])
    return _markdown([head, ["---", *["---:"] * (len(head) - 1)], *rows.values()]) if rows else ""


def ablation_table(reader: Reader) -> str:
    """What each part of Harmonia's cache gives back: `tilepress reproduce harmonia/ablation`."""
    cells = reader.cells("harmonia", "harmonia/ablation")
    head = ["cache", "perplexity", "of FP16's accuracy", "KL, nat", "recovered"]
    rows = []
    for step in [step for row, step in cells if row == "smollm2-135m, perplexity"]:
        perplexity, accuracy, kl, recovered = (
            cells[f"smollm2-135m, {what}", step].value
            for what in ("perplexity", "relative accuracy", "KL divergence", "share of the naive loss recovered")
        )
        rows.append([step, f"{perplexity:.2f}", f"{accuracy:.1f} %", f"{kl:.4f}", f"{recovered:.0f} %"])
    return _markdown([head, ["---", *["---:"] * (len(head) - 1)], *rows]) if rows else ""


def _having(values: Values, metric: str, **labels: Label) -> list[Labels]:
    """Of the figures of `metric` that have these labels, and are no statistic of another, the labels beside them."""
    named = [one for name, one in values if name == metric and "statistic" not in one and labels.items() <= one.items()]
    return [Labels({name: label for name, label in one.items() if name not in labels}) for one in named]


def _markdown(lines: list[list[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def with_table(readme: str, start: str, table: str) -> str:
    before, rest = readme.split(start)
    _, after = rest.split(END, 1)
    return before + start + table + END + after


TABLES = {
    FORMATS: formats_table,
    PACKING: packing_table,
    READS: read_bandwidths,
    SPEEDS: speeds_table,
    BESIDE: beside_table,
    MODELS: models_table,
    DEEP_MODELS: deep_table,
    LARGE: large_model_table,
    QUALITY: quality_table,
    TRAINED: trained_table,
    ANDA: anda_table,
    ABLATION: ablation_table,
}


def filled(page: Path) -> str:
    """The page's text, with all its tables made anew."""
    text = page.read_text()
    for start, table in TABLES.items():
        if start in text:
            reader = Reader()
            made = table(reader) + reader.foot()
            results = "../" * len(page.relative_to(ROOT).parts[1:]) + RESULTS.relative_to(ROOT).as_posix() + "/"
            text = with_table(text, start, made.replace(FROM_PAGE, results))
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page))
