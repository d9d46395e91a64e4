"""`tilepress compress`: a model in, a folder with a smaller one out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .output import Json, Recorder, hush_transformers, print_table, progress

if TYPE_CHECKING:
    from ..bench.linear import Result
    from ..models import Outcome, Recipe

WORST = 5


def compress(
    model: Annotated[str, typer.Argument(help="A model's folder, a GGUF file, smollm2-135m, or a name on the hub.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    recipe: Annotated[Path | None, typer.Option(help="A recipe in TOML; the options below override it.")] = None,
    weights: Annotated[str | None, typer.Option(help="Format of weights; see `tilepress formats`.")] = None,
    density: Annotated[float | None, typer.Option(help="Share of weights kept, above 0 and up to 1.")] = None,
    prune: Annotated[str | None, typer.Option(help="magnitude, wanda or sparsegpt.")] = None,
    quantize: Annotated[str | None, typer.Option(help="rtn, gptq or learned-clip.")] = None,
    lm_head: Annotated[str | None, typer.Option(help="keep or compress the layer that gives logits.")] = None,
    acts: Annotated[str | None, typer.Option(help="Activations: fp, int8 or bfp:gN:mN.")] = None,
    calibration: Annotated[str | None, typer.Option(help="Text to calibrate with: a file, wikitext2 or pydoc.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Windows of the text to take.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a window.")] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the windows.")] = None,
    json: Json = False,
) -> None:
    """Compress a model block by block into a folder that transformers loads after `import tilepress`.

    Interrupted, the same command goes on from the last finished block. Without a recipe and options weights become
    int4:g32, rounded to nearest. The end of the table names the layers whose output lost most: the error is the lost
    share of its power.

    Example: tilepress compress smollm2-135m -o small --weights int4:g32 --density 0.5 --prune wanda --acts int8
    """
    options: dict[str, dict[str, Any]] = {
        "weights": {"format": weights, "density": density, "prune": prune, "quantize": quantize, "lm_head": lm_head},
        "activations": {"format": acts},
        "calibration": {"text": calibration, "sequences": sequences, "length": length, "seed": seed},
    }
    chosen = _recipe(recipe, options)
    outcome = _compress(model, out, chosen, json)
    recorder = Recorder()
    _record(recorder, outcome)
    race = _race(chosen, outcome, json)
    if race is not None:
        _record_race(recorder, race)
    if json:
        recorder.print_json()
    else:
        _print(outcome)
    if race is not None and not _pays(race):
        typer.echo(_warning(race), err=True)


def _recipe(path: Path | None, options: dict[str, dict[str, Any]]) -> "Recipe":
    """The file's recipe with the options that were given in place of its own."""
    from ..models.recipe import read_recipe, read_toml

    merged = read_toml(path) if path is not None else {}
    for section, values in options.items():
        given = {key: value for key, value in values.items() if value is not None}
        if given:
            merged[section] = {**merged.get(section, {}), **given}
    return read_recipe(merged)


def _compress(model: str, out: Path, recipe: "Recipe", quiet: bool) -> "Outcome":
    from ..models import Progress, compress_folder

    hush_transformers()
    with progress(quiet) as bar:
        task = bar.add_task("compressing", total=None)

        def show(state: Progress) -> None:
            bar.update(task, completed=state.done, total=state.total)

        try:
            return compress_folder(model, out, recipe, progress=show)
        except KeyboardInterrupt:
            typer.echo(f"Finished blocks are kept in {out}.partial; the same command goes on from there.", err=True)
            raise


def _record(recorder: Recorder, outcome: "Outcome") -> None:
    recorder.add("size.before", outcome.source_bytes, "B")
    recorder.add("size.after", outcome.nbytes, "B")
    recorder.add("compression", outcome.source_bytes / outcome.nbytes, "x")
    recorder.add("bits_per_weight", outcome.bits_per_weight, "bit")
    recorder.add("time", outcome.seconds, "s")
    for layer in outcome.layers:
        recorder.add(f"{layer.name}.error", layer.error)


def _print(outcome: "Outcome") -> None:
    rows = [
        ["size before", f"{outcome.source_bytes / 1e6:.1f} MB"],
        ["size after", f"{outcome.nbytes / 1e6:.1f} MB"],
        ["times smaller", f"{outcome.source_bytes / outcome.nbytes:.2f}"],
        ["packed layers", str(len(outcome.layers))],
        ["bits a weight, in them", f"{outcome.bits_per_weight:.2f}"],
        ["time", f"{outcome.seconds:.1f} s"],
    ]
    worst = sorted(outcome.layers, key=lambda layer: -layer.error)[:WORST]
    rows += [[f"error of {layer.name}", f"{100 * layer.error:.3f} %"] for layer in worst]
    print_table(str(outcome.folder), ["", ""], rows)


def _race(recipe: "Recipe", outcome: "Outcome", quiet: bool) -> "Result | None":
    """The largest sparse layer, timed here and now as it is and dense, one row of activations; None if all is dense."""
    from ..bench.linear import Contestant, Settings, measure
    from ..bench.shapes import Shape

    sparse = [layer for layer in outcome.layers if recipe.plan(layer.name).density < 1]
    if not sparse:
        return None
    layer = max(sparse, key=lambda layer: layer.weights)
    plan = recipe.plan(layer.name)
    contestants = [Contestant(plan.format, density, layer.activations) for density in (1.0, plan.density)]
    with progress(quiet) as bar:
        bar.add_task("timing sparse against dense", total=None)
        return next(measure(Shape(*layer.shape), contestants, Settings(peers=False)))


def _record_race(recorder: Recorder, race: "Result") -> None:
    for timing in race.timings:
        recorder.add(f"{timing.name}.{race.shape}.b1.time", timing.seconds, "s")
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
