"""`make readme`: put the table that `tilepress formats --markdown` prints, the speeds that `make bench` kept, what
`benchmarks/quality.py` kept and the studies of `tilepress reproduce` into README.md. What was never measured has no
table."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
RESULTS = Path(__file__).parent / "results"
FORMATS = "<!-- tilepress formats --markdown -->\n"
ONE_NUMBER, PACKING, SPEEDS = "<!-- one number -->\n", "<!-- packing -->\n", "<!-- speeds -->\n"
READS = "<!-- read bandwidths -->\n"
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


def formats_table() -> str:
    command = [sys.executable, "-m", "tilepress", "formats", "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packing_table() -> str:
    """Packing and unpacking at 50 % density on both machines."""
    machines = [(machine, _latest(part)) for part, (machine, _) in MACHINES.items()]
    lines = [["format", *(f"{machine}: {what}" for machine, _ in machines for what in ("pack", "unpack"))]]
    lines[0] += ["size", "peak memory, 2 cores"]
    lines.append(["---", *["---:"] * 6])
    for format in ["int4:g32", "int8:row", "mxfp4", "e4m3", "bf16"]:
        name = f"{format}.{SHAPE}.d0.5"
        times = [f"{1e3 * values[f'{name}.{what}']:.0f} ms" for _, values in machines for what in ("pack", "unpack")]
        values = machines[0][1]
        rest = [f"{values[f'{name}.size']:.1f} MB", f"{values[f'{name}.peak_over_size']:.2f} ×"]
        lines.append([f"`{format}`", *times, *rest])
    return _markdown(lines)


def read_bandwidths() -> str:
    """What `tilepress doctor` read on both machines, with one thread and with all."""
    start, said = "read_bandwidth.threads_", []
    for part, (machine, _) in MACHINES.items():
        rates = {int(name.removeprefix(start)): rate for name, rate in _latest(part).items() if name.startswith(start)}
        most = max(rates)
        said.append(f"{rates[1]:.1f} GB/s with one thread and {rates[most]:.1f} with {most} on the {machine}")
    return textwrap.fill(f"Read bandwidth, as `tilepress doctor` measured it there: {'; '.join(said)}.", 120) + "\n"


def speeds_table() -> str:
    """Time and ratio of every entrant on both machines, from the latest results of each."""
    batches, reads = [f"batch {batch}" for batch in BATCHES], ["% of read, batch 1", "× plain read, batch 1"]
    lines = [["machine", "weights + activations", *batches, *reads, "× of"]]
    lines.append(["---", "---", *["---:"] * len([*batches, *reads]), "---"])
    for part, (machine, peer) in MACHINES.items():
        values = _latest(part, counts=lambda command: "--shape llama3-8b" in command)
        for name in ENTRANTS:
            cells = [_cell(values, f"{name}.{SHAPE}.b{batch}", peer) for batch in BATCHES]
            share, over = (
                values.get(f"{name}.{SHAPE}.b1.{what}") for what in ("share_of_read_bandwidth", "over.plain read")
            )
            lines.append([machine, f"`{name}`", *cells, f"{100 * share:.0f}", f"{over:.2f}" if over else "", peer])
    return _markdown(lines)


def models_table() -> str:
    """Prefill and decoding of whole models, ours and peers', on the machines where they were measured."""
    return _models_at(DEPTH, lambda command: "--depth" not in command)


def deep_table() -> str:
    """The same after many tokens, with small caches."""
    return _models_at(DEEP, lambda command: "--depth" in command)


def _models_at(depth: int, counts: Callable[[str], bool]) -> str:
    rows = [
        [machine, f"`{name}`", *_rates(values, name, depth)]
        for part, (machine, _) in MACHINES.items()
        for values in [_latest(part, counts=counts)]
        for name in _named(values, f".decode.depth_{depth}.batch_1")
    ]
    head = ["machine", "model", "prefill, tokens/s", "decode, tokens/s", "MB a step", "% of read"]
    return _markdown([head, ["---", "---", *["---:"] * 4], *rows]) if rows else ""


def one_number() -> str:
    """What README opens with: decoding of a real model on two cores, ours and two peers'."""
    values = _latest("neoverse-n1", counts=lambda command: "--depth" not in command)
    names = ("int4:g32+int8", "transformers float32", "torch KleidiAI int4:g32")
    ours, plain, peer = (f"{values[f'{name}.decode.depth_{DEPTH}.batch_1']:.0f}" for name in names)
    text = (
        "**One number**: on two cores of a Neoverse-N1, SmolLM2-135M with 4-bit weights (`int4:g32`) and int8 "
        f"activations writes {ours} tokens/s, where transformers in float32 writes {plain} and with torch's own 4-bit "
        f"layers {peer} ([speed](#speed), with llama.cpp beside it; [quality](#quality))."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False) + "\n"


def _rates(values: dict[str, float], name: str, depth: int) -> list[str]:
    prefill, decode = f"{name}.prefill.prompt_{depth}.batch_1", f"{name}.decode.depth_{depth}.batch_1"
    rates = [f"{values[rate]:.1f} ± {values[f'{rate}.sigma']:.1f}" for rate in (prefill, decode)]
    share = values[f"{decode}.share_of_read_bandwidth"]
    return [*rates, f"{values[f'{decode}.bytes_read'] / 1e6:.0f}", f"{100 * share:.0f}"]


def large_model_table() -> str:
    """A model of Llama-3-8B's shape, as `benchmarks/llama3_8b.py` measured it."""
    start, values = "llama3-8b.32_layers.", _latest("xeon")
    rows = []
    for name in _named(values, ".decode"):
        if name.startswith(start):
            over = [values.get(f"{name}.{what}.over.bf16") for what in ("prefill", "decode")]
            times = ["" if ratio is None else f"{ratio:.2f} ×" for ratio in over]
            prefill, decode = (f"{values[f'{name}.{what}']:.1f}" for what in ("prefill", "decode"))
            rows.append([f"`{name.removeprefix(start)}`", prefill, times[0], decode, times[1]])
    head = ["model", "prefill, tokens/s", "of transformers", "decode, tokens/s", "of transformers"]
    return _markdown([head, ["---", *["---:"] * 4], *rows])


def quality_table() -> str:
    """Quality where it was measured first, and the speed of decoding on every machine."""
    machines = {
        machine: values for part, (machine, _) in MACHINES.items() if (values := _latest(part, RESULTS / "quality"))
    }
    if not machines:
        return ""
    head = ["weights + activations", "pruned by", "perplexity", "KL, nat", "PIQA, %", "MB"]
    head += [f"tokens/s, {machine}" for machine in machines]
    rows = [_quality_row(name, *machines.values()) for name in _named(next(iter(machines.values())), _PERPLEXITY)]
    return _markdown([head, ["---", "---", *["---:"] * (len(head) - 2)], *rows])


def _quality_row(name: str, values: dict[str, float], *others: dict[str, float]) -> list[str]:
    weights, _, prune = name.partition(" ")
    size = values.get(f"{name}.size.after") or next(v for n, v in values.items() if n.endswith(".size.before"))
    kl = values.get(f"{name}.wikitext2.kl_divergence")
    piqa = f"{name}.piqa.accuracy"
    decode = [found.get(f"{name}.decode.depth_{DEPTH}.batch_1") for found in (values, *others)]
    return [
        f"`{weights}`",
        prune,
        f"{values[name + _PERPLEXITY]:.2f}",
        "" if kl is None else f"{kl:.4f}",
        f"{100 * values[piqa]:.1f} ± {100 * values[f'{piqa}.error']:.1f}",
        f"{size / 1e6:.0f}",
        *("" if rate is None else f"{rate:.1f}" for rate in decode),
    ]


def anda_table() -> str:
    """Table II's shape on our model: `tilepress reproduce anda/table2`."""
    start, values, formats = "anda/table2.smollm2-135m, ", _latest("", RESULTS / "anda"), _notes("anda")
    names = [name.removeprefix(start) for name in _named(values, ".perplexity")]
    texts = list(dict.fromkeys(name.split(", ")[0] for name in names))
    head = [
        "activations",
        *(f"{text}: {what}" for text in texts for what in ("mantissas", "perplexity", "loss", "saving")),
    ]
    rows = []
    for scheme in dict.fromkeys(name.split(", ")[1] for name in names):
        row = [scheme]
        for text in texts:
            cell = f"{start}{text}, {scheme}"
            perplexity, loss, saving = (values[f"{cell}.{what}"] for what in ("perplexity", "loss", "BOP saving"))
            row += [formats[f"{cell}.perplexity"].removeprefix("anda:"), f"{perplexity:.2f}"]
            row += [f"{loss:.2f} %", f"{saving:.2f} ×"]
        rows.append(row)
    return _markdown([head, ["---", *["---:"] * (len(head) - 1)], *rows]) if rows else ""


def ablation_table() -> str:
    """What each part of Harmonia's cache gives back: `tilepress reproduce harmonia/ablation`."""
    start, values = "harmonia/ablation.smollm2-135m, ", _latest("", RESULTS / "harmonia")
    head = ["cache", "perplexity", "of FP16's accuracy", "KL, nat", "recovered"]
    rows = []
    for step in [name.removeprefix(f"{start}perplexity.") for name in values if name.startswith(f"{start}perplexity.")]:
        perplexity, accuracy, kl, recovered = (
            values[f"{start}{what}.{step}"]
            for what in ("perplexity", "relative accuracy", "KL divergence", "share of the naive loss recovered")
        )
        rows.append([step, f"{perplexity:.2f}", f"{accuracy:.1f} %", f"{kl:.4f}", f"{recovered:.0f} %"])
    return _markdown([head, ["---", *["---:"] * (len(head) - 1)], *rows]) if rows else ""


_PERPLEXITY = ".wikitext2.perplexity"


def _named(values: dict[str, float], ending: str) -> list[str]:
    return [name.removesuffix(ending) for name in values if name.endswith(ending)]


def _markdown(lines: list[list[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _latest(
    part: str, folder: Path = RESULTS, *, counts: Callable[[str], bool] = lambda command: True
) -> dict[str, float]:
    """Name → value of the latest records of a machine, of commands that count; none where it was never measured."""
    return {record["name"]: record["value"] for record in _records(part, folder) if counts(record["command"])}


def _notes(study: str) -> dict[str, str]:
    return {record["name"]: record["note"] for record in _records("", RESULTS / study)}


def _records(part: str, folder: Path) -> list[dict[str, Any]]:
    path = max((path for path in folder.glob("*.json") if part in path.name), default=None)
    return json.loads(path.read_text()) if path else []


def _cell(values: dict[str, float], name: str, peer: str) -> str:
    return f"{values[f'{name}.time'] / 1e3:.2f} ms, {values[f'{name}.over.{peer}']:.2f} ×"


def with_table(readme: str, start: str, table: str) -> str:
    before, rest = readme.split(start)
    _, after = rest.split(END, 1)
    return before + start + table + END + after


TABLES = {
    FORMATS: formats_table,
    PACKING: packing_table,
    READS: read_bandwidths,
    SPEEDS: speeds_table,
    ONE_NUMBER: one_number,
    MODELS: models_table,
    DEEP_MODELS: deep_table,
    LARGE: large_model_table,
    QUALITY: quality_table,
    ANDA: anda_table,
    ABLATION: ablation_table,
}

if __name__ == "__main__":
    text = README.read_text()
    for start, table in TABLES.items():
        text = with_table(text, start, table())
    README.write_text(text)
