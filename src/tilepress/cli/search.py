"""`tilepress search`: Anda's mantissas for a model, within a tolerance."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._extras import has_lab
from .._files import write_text
from .completion import models, weight_formats
from .compress import read_options, tolerance_warning
from .output import Json, Recorder, TextOnly, TrustRemoteCode, hush_transformers, print_table, progress
from .report import write_page
from .workers import RayAddress, WorkerThreads, chosen_executor

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from ..compression.search import Step
    from ..evaluate.precision import Cost
    from ..models import Recipe
    from ..models.checkpoint_checks import Allowed
    from ..models.precision import Precision
    from ..models.study_model import StudyModel

VALIDATION = ("wikitext2", "ptb")
BRUTE_FORCE = "brute force"


def search(
    model: Annotated[
        str,
        typer.Argument(autocompletion=models, help="A model's folder, compressed or not, smollm2-135m, or a hub name."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The recipe to write, for `tilepress compress --recipe`.")],
    tolerance: Annotated[str, typer.Option(help="The share of perplexity that may be lost.")] = "1%",
    recipe: Annotated[
        Path | None, typer.Option(help="What to do to the weights, - for standard input; options override it.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(autocompletion=weight_formats, help="Format of weights; int4:g32 if nothing says otherwise."),
    ] = None,
    quantize: Annotated[str | None, typer.Option(help="rtn, gptq or learned-clip.")] = None,
    group: Annotated[int, typer.Option(help="Values that share an exponent: 16, 32, 64 or 128.")] = 64,
    calibration: Annotated[str | None, typer.Option(help="Text to search on: a file, wikitext2-train, pydoc.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Windows of the text to take; 8 if nothing says else.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a window; 512 if nothing says otherwise.")] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the windows.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Windows computed at once.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, or cuda to emulate there.")] = "cpu",
    brute_force: Annotated[
        bool, typer.Option("--brute-force", help="Then find the optimum by trying all that are cheaper.")
    ] = False,
    validate: Annotated[
        list[str] | None, typer.Option(help="Texts to check on; wikitext2 and ptb where found. Repeat for several.")
    ] = None,
    windows: Annotated[int, typer.Option(min=0, help="Windows of each text to check on; 0 checks nothing.")] = 2,
    time_gptq: Annotated[bool, typer.Option("--time-gptq", help="Time GPTQ on the same model and text too.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Combinations at once, each in a process that has a copy of the model.")
    ] = None,
    threads: WorkerThreads = None,
    ray: RayAddress = None,
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    json: Json = False,
) -> None:
    """Find the cheapest mantissas of Anda's activations that lose no more perplexity than the tolerance.

    One of four mantissas is shortened at a time, cheapest combination first, at most 32 of them tried. Weights are
    compressed first, in memory, unless the model is compressed already. Beside the recipe R.toml, R.search.json keeps
    every evaluation as it is made, so that the same command, interrupted, goes on; with the lab extra
    R.search.html shows the search.

    Example: tilepress search smollm2-135m --tolerance 1% -o anda.toml
    """
    from ..cluster import InProcess
    from ..cluster.searching import SharedJudge, shared_job
    from ..formats import AndaSearch, parse_tolerance
    from ..models.checkpoint_checks import Allowed
    from ..models.precision import Conductor, Evaluations, Judge, find_precision
    from ..models.study_model import load_study_model

    allowed = Allowed(trust_remote_code, text_only)
    goal = AndaSearch(parse_tolerance(tolerance), group)
    chosen = _recipe(recipe, weights, quantize, (calibration, sequences, length, seed), str(goal))
    texts = _texts(validate) if windows else {}
    out.parent.mkdir(parents=True, exist_ok=True)
    hush_transformers()
    with progress(json) as bar, chosen_executor(workers, threads, ray) as executor:
        given = None if _is_compressed(model) and weights is None and recipe is None else chosen
        subject = load_study_model(model, given, device, progress=_compressing(bar), allowed=allowed)
        chosen = _with_weights_of(subject, chosen)
        tokens = _windows(chosen, subject)
        evaluations = Evaluations(out.with_suffix(".search.json"), _job(subject, chosen, tokens, device))
        show, track = _searching(bar)
        judge: Conductor = Judge(subject.model, subject.types, tokens, group, evaluations, batch, show)
        if not isinstance(executor, InProcess):
            job = shared_job(_placed(model), given, tokens, group, batch, device, allowed)
            judge = SharedJudge(executor, job, evaluations)
        precision = find_precision(judge, subject.products, goal, prove=brute_force, track=track)
        costs = {name: _costs(subject, text, precision, windows, bar) for name, text in texts.items()}
        gptq = _gptq_seconds(model, chosen, subject, bar, allowed) if time_gptq or _is_gptq(subject) else None
    _write(out, chosen, precision)
    recorder = Recorder(model=model)
    _record(recorder, precision, subject, costs, gptq)
    if has_lab():
        write_page(out.with_suffix(".search.html"), f"Search for {out.name}", recorder.records, with_explorer=False)
    if json:
        recorder.print_json()
    else:
        _print(out, precision, costs, gptq)
    if not precision.result.within:
        typer.echo(tolerance_warning(precision), err=True)


def _recipe(
    path: Path | None, weights: str | None, quantize: str | None, calibration: tuple[Any, ...], activations: str
) -> "Recipe":
    text, sequences, length, seed = calibration
    options: dict[str, dict[str, Any]] = {
        "weights": {"format": weights, "quantize": quantize},
        "activations": {"format": activations},
        "calibration": {"text": text, "sequences": sequences, "length": length, "seed": seed},
    }
    return read_options(path, options, {"calibration": {"sequences": 8, "length": 512}})


def _is_compressed(model: str) -> bool:
    from ..models import model_folder
    from ..models.loading import is_compressed

    return is_compressed(model_folder(model))


def _with_weights_of(subject: "StudyModel", recipe: "Recipe") -> "Recipe":
    """The recipe, with what the model's weights have gone through, where they had before."""
    assert subject.recipe is not None
    types = recipe.activations.types or subject.recipe.activations.types
    activations = recipe.activations.model_copy(update={"types": types})
    return subject.recipe.model_copy(update={"activations": activations, "calibration": recipe.calibration})


def _placed(name: str) -> str:
    """A path, whole, so that it is the same one from any folder; else the name."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _windows(recipe: "Recipe", subject: "StudyModel") -> Any:
    from ..models.compress import read_windows

    if not recipe.calibration.sequences:
        raise ValueError("a search looks at calibration text, and sequences is 0: set it to 8, say")
    return read_windows(recipe, subject.tokenizer)


def _job(subject: "StudyModel", recipe: "Recipe", windows: Any, device: str) -> dict[str, Any]:
    """All that a perplexity depends on; of the recipe's activations that is the group, and not the tolerance."""
    from ..models.compress import describe
    from ..models.precision import fingerprint

    goal, stated = recipe.activations.search, describe([], recipe)
    assert goal is not None
    return {
        "files": subject.fingerprint,
        "weights": stated.recipe["weights"],
        "types": subject.types,
        "group": goal.group,
        "versions": stated.versions,
        "windows": fingerprint(windows),
        "device": device,
    }


def _compressing(bar: "Bar") -> "Callable[[Any], None]":
    task = bar.add_task("compressing weights", total=None)

    def show(state: Any) -> None:
        bar.update(task, completed=state.done, total=state.total, visible=state.done < state.total)

    return show


def _searching(bar: "Bar") -> "tuple[Callable[[int, int], None], Callable[[Step], None]]":
    """What show how far an evaluation is, and what the last one gave."""
    task = bar.add_task("searching", total=None)

    def show(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)

    def show_step(step: "Step") -> None:
        verdict = "taken" if step.accepted else "not taken"
        bar.update(task, description=f"{step.number}: {list(step.mantissas)} {100 * step.loss:+.2f} % {verdict}")

    return show, show_step


def _texts(names: Sequence[str] | None) -> dict[str, str]:
    """Name → text to check on: those named, or those of the usual ones that are here."""
    from ..models.texts import TextUnavailableError, read_text

    texts = {}
    for name in names or VALIDATION:
        try:
            texts[name] = read_text(name)
        except TextUnavailableError:
            if names:
                raise
    return texts


def _costs(subject: "StudyModel", text: str, precision: "Precision", windows: int, bar: "Bar") -> "list[Cost]":
    from ..evaluate import Windowing, beginning, tokenize
    from ..evaluate.precision import BASELINES, Scheme, compare_schemes

    task = bar.add_task("checking", total=(1 + len(BASELINES)) * windows)

    def track(batches: Sequence[Any]) -> Any:
        for batch in batches:
            yield batch
            bar.advance(task)

    schemes = [*BASELINES, Scheme(f"Anda {100 * precision.result.tolerance:g} %", precision.format)]
    tokens = tokenize(subject.tokenizer, text)
    windowing = Windowing(limit=windows, begin=beginning(subject.tokenizer))
    return list(compare_schemes(subject.model, subject.types, subject.products, tokens, schemes, windowing, track))


def _is_gptq(subject: "StudyModel") -> bool:
    return subject.seconds is not None and subject.recipe is not None and subject.recipe.weights.quantize == "gptq"


def _gptq_seconds(model: str, recipe: "Recipe", subject: "StudyModel", bar: "Bar", allowed: "Allowed") -> float | None:
    """What GPTQ takes on the same text: as it did just now, or run for it."""
    from ..models.study_model import load_study_model

    if _is_gptq(subject):
        return subject.seconds
    if _is_compressed(model):
        raise ValueError(f"GPTQ cannot be timed on {model}, which is compressed already: leave --time-gptq out")
    weights = recipe.weights.model_copy(update={"quantize": "gptq"})
    with_gptq = recipe.model_copy(update={"weights": weights})
    return load_study_model(model, with_gptq, progress=_compressing(bar), allowed=allowed).seconds


def _write(out: Path, recipe: "Recipe", precision: "Precision") -> None:
    from ..models.recipe import to_toml

    activations = recipe.activations.model_copy(update={"format": str(precision.format)})
    write_text(out, to_toml(recipe.model_copy(update={"activations": activations})))


def _record(
    recorder: Recorder,
    precision: "Precision",
    subject: "StudyModel",
    costs: "dict[str, list[Cost]]",
    gptq: float | None,
) -> None:
    from ..compression.search import bops_saving

    search = precision.result
    recorder.add("activations", str(precision.format))
    recorder.add("tolerance", 100 * search.tolerance, "%")
    recorder.add("within_tolerance", search.within)
    recorder.add("iterations", len(search.steps))
    recorder.add("reference_perplexity", search.reference)
    recorder.add("perplexity", search.perplexity)
    recorder.add("loss", 100 * search.loss, "%")
    recorder.add("bops_saving", search.saving, "x", "model")
    recorder.add("time", precision.seconds, "s")
    for kind, share in zip(("qkv", "o", "u", "d"), subject.products, strict=True):
        recorder.add("share_of_products", share / sum(subject.products), "", "model", tensor=kind)
    if gptq is not None:
        recorder.add("time", gptq, "s", method="gptq")
    if precision.optimum is not None:
        recorder.add("activations", ",".join(map(str, precision.optimum.mantissas)), method=BRUTE_FORCE)
        recorder.add("bops_saving", precision.optimum.saving, "x", "model", method=BRUTE_FORCE)
        recorder.add("iterations", len(precision.optimum.steps), method=BRUTE_FORCE)
    for step in search.steps:
        recorder.add("mantissas", ",".join(map(str, step.mantissas)), step=step.number)
        recorder.add("loss", 100 * step.loss, "%", step=step.number)
        recorder.add("bops_saving", bops_saving(step.mantissas, subject.products), "x", "model", step=step.number)
        recorder.add("accepted", step.accepted, step=step.number)
    for text, rows in costs.items():
        for cost in rows:
            labels = {"text": text, "scheme": cost.scheme.name}
            recorder.add("perplexity", cost.perplexity.perplexity.value, **labels)
            recorder.add("loss", 100 * cost.loss, "%", **labels)
            recorder.add("bops_saving", cost.saving, "x", "model", **labels)


def _print(out: Path, precision: "Precision", costs: "dict[str, list[Cost]]", gptq: float | None) -> None:
    from ..evaluate.precision import cost_table

    search = precision.result
    rows = [
        [
            str(step.number),
            str(list(step.mantissas)),
            f"{step.perplexity:.4f}",
            f"{100 * step.loss:+.3f}",
            _verdict(step),
        ]
        for step in search.steps
    ]
    columns = ["iteration", "qkv, o, u, d", "perplexity", "loss, %", ""]
    print_table(f"{precision.format} on the calibration text", columns, rows)
    for text, costs_of_text in costs.items():
        columns = ["activations", "format", "perplexity", "loss, %", "BOP saving, ×"]
        print_table(f"{text}, weights alike", columns, cost_table(costs_of_text), words=2)
    if precision.optimum is not None:
        best = precision.optimum
        print(f"brute force: {list(best.mantissas)}, {best.saving:.2f} × after {len(best.steps)} combinations")
    beside = "" if gptq is None else f"; GPTQ on the same text: {gptq:.1f} s"
    print(f"{search.saving:.2f} times fewer bit operations than FP16, {100 * search.loss:+.3f} % perplexity")
    print(f"time: {precision.seconds:.1f} s for {len(search.steps)} iterations{beside}")
    print(f"written: {', '.join(str(path) for path in _written(out))}")


def _written(out: Path) -> list[Path]:
    """The recipe, its page where the lab extra is installed, and its evaluations."""
    pages = [out.with_suffix(".search.html")] if has_lab() else []
    return [out, *pages, out.with_suffix(".search.json")]


def _verdict(step: "Step") -> str:
    return "taken" if step.accepted else ""
