"""`tilepress compress`: a model in, a folder with a smaller one out."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .completion import weight_formats
from .output import Json, Model, Recorder, TextOnly, TrustRemoteCode, hush_transformers, print_table, progress
from .report import Html, check_page, write_page
from .stdin import NAME, is_stdin, read_stdin
from .workers import RayAddress, Workers, WorkerThreads, chosen_executor

if TYPE_CHECKING:
    from ..bench.linear import Result
    from ..cluster import InProcess, LocalExecutor, RayExecutor
    from ..compression.search import Step
    from ..models import Outcome, Recipe
    from ..models.checkpoint_checks import Allowed
    from ..models.precision import Precision

WORST = 5


def compress(
    model: Model,
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    recipe: Annotated[
        Path | None,
        typer.Option(help="A recipe in TOML, - for standard input, or harmonia; the options below override it."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(autocompletion=weight_formats, help="Format of weights; see `tilepress formats`.")
    ] = None,
    density: Annotated[float | None, typer.Option(help="Share of weights kept, above 0 and up to 1.")] = None,
    prune: Annotated[str | None, typer.Option(help="magnitude, wanda or sparsegpt.")] = None,
    quantize: Annotated[str | None, typer.Option(help="rtn, gptq or learned-clip.")] = None,
    clip_search: Annotated[
        str | None, typer.Option(help="on or off: cut a group's range where that makes the error smaller.")
    ] = None,
    column_order: Annotated[
        str | None,
        typer.Option(help="Of gptq and sparsegpt: activation, by the power of inputs, or input, as they come."),
    ] = None,
    refit: Annotated[
        str | None, typer.Option(help="on or off: fit kept weights anew once sparsegpt or gptq knows the mask.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What gptq, sparsegpt and learned-clip match: outputs of the layer, or of the dense model."),
    ] = None,
    embedding: Annotated[
        str | None, typer.Option(help="Format of token embeddings, and of an output layer that shares them; or keep.")
    ] = None,
    lm_head: Annotated[
        str | None, typer.Option(help="Layer that gives logits: keep, compress like all others, or a format.")
    ] = None,
    reconstruct: Annotated[
        int | None, typer.Option(help="Steps of training each block after that, towards what it gave; 100, say.")
    ] = None,
    heal: Annotated[
        int | None, typer.Option(help="Steps of training the whole model at the end; takes all of it in memory.")
    ] = None,
    acts: Annotated[
        str | None, typer.Option(help="Activations: fp, bf16, int8, bfp:gN:mN, anda:7,7,6,5, or anda:1% to find those.")
    ] = None,
    kv: Annotated[
        str | None, typer.Option(help="KV cache of `generate`: model, fp16, bf16, bfp8, bfp4n+rotate, sparse:k30,v50 …")
    ] = None,
    smoothing: Annotated[
        str | None, typer.Option(help="Of keys in a bfp cache: none, offline, online or hybrid.")
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Text to calibrate with: a file, wikitext2 or pydoc.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Windows of the text to take.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a window.")] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the windows.")] = None,
    device: Annotated[
        str, typer.Option(help="What computes meanwhile: cpu, or cuda where there is one; bits differ a little.")
    ] = "cpu",
    workers: Workers = None,
    threads: WorkerThreads = None,
    ray: RayAddress = None,
    shard_size: Annotated[float, typer.Option(min=1e-6, help="GB of a file of weights, at most.")] = 4,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    html: Html = None,
    json: Json = False,
) -> None:
    """Compress a model block by block into a folder that transformers loads after `import tilepress`.

    Interrupted, the same command goes on from the last finished block. Without a recipe and options weights become
    int4:g32, and token embeddings int8:row, rounded to nearest. Weights that come on a grid that the format holds, as
    uint4:g32 holds that of a GGUF file in Q4_0 or Q4_1, are taken as they are; so are those that another tool has
    quantised (GPTQ, AWQ, compressed-tensors, FP8, NF4 …) where no other weights are asked for. The end of the table
    names the layers whose output lost most: the error is the lost share of its power.

    With --workers or --ray, several processes share the calibration text and the layers, and the bytes are the same.
    Each has one block of the model in memory, and its share of what the block's layers are given.

    Example: tilepress compress smollm2-135m -o small --weights int4:g32 --density 0.5 --prune wanda --acts int8
    """
    check_page(html, "compress")
    from ..models.checkpoint_checks import Allowed

    options: dict[str, dict[str, Any]] = {
        "weights": {
            "format": weights,
            "density": density,
            "prune": prune,
            "quantize": quantize,
            "clip_search": clip_search,
            "column_order": column_order,
            "refit": refit,
            "target": target,
            "embedding": embedding,
            "reconstruct": reconstruct,
            "heal": heal,
            "lm_head": lm_head,
        },
        "activations": {"format": acts},
        "kv_cache": {"format": kv, "smoothing": smoothing},
        "calibration": {"text": calibration, "sequences": sequences, "length": length, "seed": seed},
    }
    chosen = read_options(recipe, options)
    ways = {"device": device, "shard_bytes": round(shard_size * 1e9)}
    with chosen_executor(workers, threads, ray) as executor:
        outcome = _compress(executor, model, out, chosen, ways, json, Allowed(trust_remote_code, text_only))
    recorder = Recorder(model=str(out))
    _record(recorder, outcome)
    race = _race(chosen, outcome, json)
    if race is not None:
        _record_race(recorder, race)
    write_page(html, f"{model} compressed", recorder.records)
    if json:
        recorder.print_json()
    else:
        _print(outcome)
    if outcome.precision is not None and not outcome.precision.result.within:
        typer.echo(tolerance_warning(outcome.precision), err=True)
    if race is not None and not _pays(race):
        typer.echo(_warning(race), err=True)


def read_options(
    path: Path | None, options: dict[str, dict[str, Any]], defaults: dict[str, dict[str, Any]] | None = None
) -> "Recipe":
    """The file's recipe with the options that were given in place of its own; `defaults` where neither says a word."""
    from ..models.recipe import parse_toml, read_recipe, read_toml

    merged: dict[str, Any] = {}
    if path is not None:
        merged = parse_toml(read_stdin("a recipe"), NAME) if is_stdin(path) else read_toml(path)
    for section, values in (defaults or {}).items():
        merged[section] = {**values, **merged.get(section, {})}
    for section, values in options.items():
        given = {key: value for key, value in values.items() if value is not None}
        if given and isinstance(merged.setdefault(section, {}), dict):  # else it is refused below, by its name
            merged[section] = {**merged[section], **given}
    return read_recipe(merged)


def _compress(
    executor: "InProcess | LocalExecutor | RayExecutor",
    model: str,
    out: Path,
    recipe: "Recipe",
    ways: dict[str, Any],
    quiet: bool,
    allowed: "Allowed",
) -> "Outcome":
    from ..cluster import compress_over
    from ..models import Progress

    hush_transformers()
    with progress(quiet) as bar:
        task = bar.add_task("compressing", total=None)

        def show(state: Progress) -> None:
            bar.update(task, description=state.doing, completed=state.done, total=state.total)

        def show_step(step: "Step") -> None:
            bar.update(task, description=f"searching: {list(step.mantissas)} {100 * step.loss:+.2f} %")

        try:
            seen = {"progress": show, "track": show_step}
            return compress_over(executor, model, out, recipe, **seen, **ways, **asdict(allowed))
        except KeyboardInterrupt:
            typer.echo(f"Finished blocks are kept in {out}.partial; the same command goes on from there.", err=True)
            raise


def _record(recorder: Recorder, outcome: "Outcome") -> None:
    share = outcome.share
    if share is not None:
        recorder.add("parameters_kept", share.kept)
        recorder.add("parameters_packed", share.packed)
    recorder.add("source_size", outcome.source_bytes, "B")
    recorder.add("size", outcome.nbytes, "B")
    recorder.add("compression", outcome.source_bytes / outcome.nbytes, "x")
    recorder.add("bits_per_weight", outcome.bits_per_weight, "bit")
    recorder.add("time", outcome.seconds, "s")
    if outcome.precision is not None:
        search = outcome.precision.result
        recorder.add("search_activations", str(outcome.precision.format))
        recorder.add("search_within_tolerance", search.within)
        recorder.add("search_loss", 100 * search.loss, "%")
        recorder.add("search_bops_saving", search.saving, "x", "model")
        recorder.add("search_time", outcome.precision.seconds, "s")
    for layer in outcome.layers:
        recorder.add("layer_error", layer.error, layer=layer.name)
        if layer.grid_error is not None:
            recorder.add("source_grid_error", layer.grid_error, "step", layer=layer.name)
        if layer.rounding:
            recorder.add("rounded_again", layer.rounding, layer=layer.name)
    for dense in outcome.dense:
        recorder.add("left_dense", dense.why, layer=dense.name)
    for layer in outcome.layers:
        if not layer.calibrated:
            recorder.add("uncalibrated", "too few tokens reached it", layer=layer.name)


def _print(outcome: "Outcome") -> None:
    rows = [
        ["parameters", str(outcome.share)],
        ["size before", f"{outcome.source_bytes / 1e6:.1f} MB"],
        ["size after", f"{outcome.nbytes / 1e6:.1f} MB"],
        ["times smaller", f"{outcome.source_bytes / outcome.nbytes:.2f}"],
        ["packed layers", str(len(outcome.layers))],
        ["bits a weight, in them", f"{outcome.bits_per_weight:.2f}"],
        ["time", f"{outcome.seconds:.1f} s"],
    ]
    rows += [[f"came as {format}", text] for format, text in _as_they_came(outcome)]
    if outcome.precision is not None:
        search, format = outcome.precision.result, outcome.precision.format
        summary = f"{format}: {100 * search.loss:+.3f} % perplexity, {search.saving:.2f} × fewer bit operations"
        rows += [["activations found", summary], ["time of the search", f"{outcome.precision.seconds:.1f} s"]]
    worst = sorted(outcome.layers, key=lambda layer: -layer.error)[:WORST]
    rows += [[f"error of {layer.name}", f"{100 * layer.error:.3f} %"] for layer in worst]
    print_table(_verdict(outcome), ["", ""], rows + _dense_rows(outcome) + _uncalibrated_rows(outcome))


def _verdict(outcome: "Outcome") -> str:
    """How much smaller, and what the layer that lost most has lost."""
    sizes = f"{outcome.source_bytes / 1e6:.1f} MB to {outcome.nbytes / 1e6:.1f} MB"
    smaller = f"{outcome.folder}: {outcome.source_bytes / outcome.nbytes:.2f} times smaller, {sizes}"
    if not outcome.layers:
        return smaller
    worst = max(outcome.layers, key=lambda layer: layer.error)
    return f"{smaller}; no layer's output lost more than {100 * worst.error:.3f} % of its power"


def _as_they_came(outcome: "Outcome") -> Iterator[tuple[str, str]]:
    """Format → how many of the layers in it had its grid already."""
    for format in sorted({layer.format for layer in outcome.layers}):
        layers = [layer for layer in outcome.layers if layer.format == format]
        errors = [layer.grid_error for layer in layers if layer.grid_error is not None]
        if errors:
            off = f"to {max(errors):.3f} of a step" if max(errors) else "exactly"
            yield format, f"{len(errors)} of {len(layers)} layers were on such a grid already: taken as they are, {off}"


def _dense_rows(outcome: "Outcome") -> list[list[str]]:
    """What stayed as it was, the same layers of all blocks in one row."""
    from ..models.blocks import pattern

    weights: dict[tuple[str, str], int] = {}
    for layer in outcome.dense:
        row = (pattern(layer.name), layer.why)
        weights[row] = weights.get(row, 0) + layer.weights
    return [[f"left dense: {name}", f"{count / 1e6:.1f} M weights: {why}"] for (name, why), count in weights.items()]


def _uncalibrated_rows(outcome: "Outcome") -> list[list[str]]:
    """Experts that too few tokens reached, the same layers of all blocks and experts in one row."""
    from ..models.blocks import pattern

    blind = Counter(pattern(layer.name) for layer in outcome.layers if not layer.calibrated)
    packed = Counter(pattern(layer.name) for layer in outcome.layers)
    why = "too few tokens reached them: rounded without statistics"
    return [[f"not calibrated: {name}", f"{count} of {packed[name]}: {why}"] for name, count in blind.items()]


def tolerance_warning(precision: "Precision") -> str:
    search = precision.result
    return (
        f"warning: no combination keeps within {100 * search.tolerance:g} % on this text; {precision.format}, the most "
        f"precise one tried, loses {100 * search.loss:.3f} %: allow more, or keep activations as they are"
    )


def _race(recipe: "Recipe", outcome: "Outcome", quiet: bool) -> "Result | None":
    """The largest sparse layer, timed here and now as it is and dense, one row of activations; None if all is dense.
    Copies take no more memory than the model, which will run from a cache if it fits one; nor do the layer's weights
    as floats, a few times over."""
    from ..bench.linear import Contestant, Settings, measure
    from ..bench.shapes import Shape

    sparse = [layer for layer in outcome.layers if layer.density < 1]
    if not sparse:
        return None
    layer = max(sparse, key=lambda layer: layer.weights)
    plan, (neurons, inputs) = recipe.plan(layer.name), layer.shape
    neurons = min(neurons, max(outcome.nbytes, 16_000_000) // (16 * inputs))
    contestants = [Contestant(plan.format, density, layer.activations) for density in (1.0, plan.density)]
    with progress(quiet) as bar:
        bar.add_task("timing sparse against dense", total=None)
        return next(measure(Shape(neurons, inputs), contestants, Settings(peers=False, memory=outcome.nbytes)))


def _record_race(recorder: Recorder, race: "Result") -> None:
    for timing in race.timings:
        recorder.add("time", timing.seconds * 1e6, "us", **timing.labels, shape=str(race.shape), batch=1)
    recorder.add("sparse_pays", _pays(race))


def _pays(race: "Result") -> bool:
    dense, sparse = race.timings
    return sparse.seconds < dense.seconds


def _warning(race: "Result") -> str:
    dense, sparse = race.timings
    return (
        f"warning: sparse weights make the model smaller, not faster, on this machine: {sparse.name} at {race.shape} "
        f"takes {sparse.seconds / dense.seconds:.2f} times as long as {dense.name}. "
        "`tilepress bench linear --sweep` shows which densities pay."
    )
