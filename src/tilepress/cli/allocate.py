"""`tilepress allocate`: a format and a density for each layer, within a budget of bytes."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._files import write_text
from .compress import read_options
from .output import (
    Json,
    Model,
    Recorder,
    TextOnly,
    TrustRemoteCode,
    figure_text,
    hush_transformers,
    print_table,
    progress,
)

if TYPE_CHECKING:
    from ..compression.allocate import Allocation
    from ..models.mixed_recipe import Measured

CHOICES = ("uint3:g64", "uint4:g64", "int6:g64", "int8:row")
DEFAULTS = {"calibration": {"sequences": 8, "length": 512}}


def allocate(
    model: Model,
    out: Annotated[Path, typer.Option("-o", "--out", help="The recipe to write, for `tilepress compress --recipe`.")],
    bits: Annotated[
        float | None, typer.Option(help="Budget: bits a weight, scales included, of the layers in blocks.")
    ] = None,
    megabytes: Annotated[
        float | None, typer.Option(help="Budget: size of all weights of the compressed model, embedding included.")
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT[@DENSITY]",
            help=f"What a layer may become, int8:row@50% say; repeat it. {', '.join(CHOICES)} if not given.",
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe in TOML that says all else; options override it.")
    ] = None,
    prune: Annotated[str | None, typer.Option(help="magnitude, wanda or sparsegpt.")] = None,
    quantize: Annotated[str | None, typer.Option(help="rtn, gptq or learned-clip.")] = None,
    calibration: Annotated[str | None, typer.Option(help="Text to measure on: a file, wikitext2 or pydoc.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Windows to measure on; 8 if nothing says otherwise.")] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a window; 512 if nothing says otherwise.")] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the windows.")] = None,
    device: Annotated[str, typer.Option(help="What computes meanwhile: cpu, or cuda where there is one.")] = "cpu",
    trust_remote_code: TrustRemoteCode = False,
    text_only: TextOnly = False,
    json: Json = False,
) -> None:
    """Choose a format and a density for each layer, so that a model within a budget of bytes loses least.

    Each layer in the model's blocks is compressed by each choice, alone, and the error of its block's output measured;
    then the choices are made whose summed errors are least. The embedding and the layers outside the blocks stay as the
    recipe has them. The recipe that is written has an override for each layer, and --recipe's own text and windows for
    `tilepress compress`; --sequences and --length are of the measurement. Beside R.toml, R.allocate.json keeps every
    error as it is measured: interrupted, the same command goes on, and another budget needs no measuring.

    Example: tilepress allocate smollm2-135m --bits 4.5 -o mixed.toml
    """
    from ..models.checkpoint_checks import Allowed
    from ..models.choices import Budget, parse_choice
    from ..models.mixed_recipe import measure_choices
    from ..models.recipe import to_toml

    budget = Budget(bits, megabytes)
    methods: dict[str, Any] = {"prune": prune, "quantize": quantize}
    of_text = {"text": calibration, "seed": seed}
    base = read_options(recipe, {"weights": methods, "calibration": of_text})
    measuring: dict[str, Any] = {"sequences": sequences, "length": length}
    options = {"weights": methods, "calibration": of_text | measuring}
    subject = read_options(recipe, options, DEFAULTS)
    choices = [parse_choice(text, subject.weights.density) for text in choose or CHOICES]
    out.parent.mkdir(parents=True, exist_ok=True)
    hush_transformers()
    with progress(json) as bar:
        task = bar.add_task("measuring layers", total=None)
        measured = measure_choices(
            model,
            subject,
            choices,
            budget,
            results_of(out),
            progress=lambda state: bar.update(task, completed=state.done, total=state.total),
            device=device,
            allowed=Allowed(trust_remote_code, text_only),
        )
    allocation = measured.allocate(budget)
    write_text(out, to_toml(measured.recipe(base, allocation)))
    kinds = _kinds(measured, allocation)
    if json:
        recorder = Recorder("model", model=model)
        _record(recorder, measured, allocation, kinds)
        recorder.print_json()
    else:
        _print(out, measured, allocation, kinds)


def results_of(out: Path) -> Path:
    """The file of what was measured for the recipe `out`."""
    return out.with_suffix(".allocate.json")


@dataclass(frozen=True)
class _Figures:
    """What layers take and lose together."""

    nbytes: int
    weights: int
    loss: float

    @property
    def bits(self) -> float:
        return 8 * self.nbytes / self.weights

    @property
    def texts(self) -> list[str]:
        return [f"{self.nbytes / 1e6:.2f}", f"{self.bits:.3f}", figure_text(self.loss)]


@dataclass(frozen=True)
class _Kind:
    """The same layer of all blocks: how many have which choice."""

    chosen: Counter[str]
    figures: _Figures

    @property
    def text(self) -> str:
        return ", ".join(f"{count} × {choice}" for choice, count in self.chosen.most_common())


def _kinds(measured: "Measured", allocation: "Allocation") -> dict[str, _Kind]:
    from ..models.blocks import pattern

    members: dict[str, list[int]] = {}
    for number, unit in enumerate(measured.units):
        members.setdefault(pattern(unit.match), []).append(number)
    return {name: _kind(measured, allocation, numbers) for name, numbers in members.items()}


def _kind(measured: "Measured", allocation: "Allocation", numbers: list[int]) -> _Kind:
    chosen = [(number, allocation.chosen[number]) for number in numbers]
    sizes = sum(measured.sizes[number][index] for number, index in chosen)
    weights = sum(measured.units[number].weights for number in numbers)
    loss = math.fsum(measured.losses[number][index] for number, index in chosen)
    counts = Counter(str(measured.choices[index]) for _, index in chosen)
    return _Kind(counts, _Figures(sizes, weights, loss))


def _mixed(measured: "Measured", allocation: "Allocation") -> _Figures:
    return _Figures(allocation.nbytes, measured.weights, allocation.loss)


def _uniform(measured: "Measured") -> dict[str, _Figures]:
    """Choice → what all layers take and lose with it; the smallest first."""
    totals = {str(choice): measured.uniform(index) for index, choice in enumerate(measured.choices)}
    ordered = sorted(totals.items(), key=lambda item: item[1].nbytes)
    return {choice: _Figures(one.nbytes, measured.weights, one.loss) for choice, one in ordered}


def _record(recorder: Recorder, measured: "Measured", allocation: "Allocation", kinds: dict[str, _Kind]) -> None:
    recorder.add("size", allocation.nbytes + measured.rest, "B")
    _record_figures(recorder, _mixed(measured, allocation))
    recorder.add("predicted_loss", allocation.bound, statistic="lower_bound")
    for name, kind in kinds.items():
        _record_figures(recorder, kind.figures, layer=name)
        for choice, count in kind.chosen.items():
            recorder.add("layers", count, layer=name, choice=choice)
    for choice, figures in _uniform(measured).items():
        _record_figures(recorder, figures, choice=choice)


def _record_figures(recorder: Recorder, figures: _Figures, **labels: str) -> None:
    recorder.add("layers_size", figures.nbytes, "B", **labels)
    recorder.add("bits_per_weight", figures.bits, "bit", **labels)
    if math.isfinite(figures.loss):
        recorder.add("predicted_loss", figures.loss, **labels)


def _print(out: Path, measured: "Measured", allocation: "Allocation", kinds: dict[str, _Kind]) -> None:
    columns = ["MB", "bits a weight", "predicted loss"]
    rows = [[name, kind.text, *kind.figures.texts] for name, kind in kinds.items()]
    print_table(f"{out}: layers in blocks", ["layer", "choices", *columns], rows, words=2)
    uniform = _uniform(measured)
    rows = [["mixed", *_mixed(measured, allocation).texts]]
    rows += [[f"all {choice}", *figures.texts] for choice, figures in uniform.items()]
    print_table("beside the same choice for all", ["recipe", *columns], rows)
    print(f"all weights: {(allocation.nbytes + measured.rest) / 1e6:.1f} MB")
    print(_comparison(allocation, uniform))
    print(f"written: {out}, {results_of(out)}")


def _comparison(allocation: "Allocation", uniform: dict[str, _Figures]) -> str:
    """Beside the best choice that fits for all layers."""
    fitting = [(one.loss, choice) for choice, one in uniform.items() if one.nbytes <= allocation.budget]
    if not fitting:
        return "no choice fits this budget for all layers"
    loss, choice = min(fitting)
    return f"predicted loss {figure_text(allocation.loss)}; all {choice}, the best that fits: {figure_text(loss)}"
