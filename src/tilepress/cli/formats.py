"""`tilepress formats`: every weight format, what it costs and what it keeps."""

from typing import TYPE_CHECKING, Annotated

import typer

from .completion import weight_formats
from .formats_sqnr import KEPT
from .output import Json, Recorder, markdown_table, print_table, progress

if TYPE_CHECKING:
    from ..formats import WeightFormat
    from ..records import Origin

DENSITIES = (1.0, 0.5, 0.2, 0.05)
NEURONS, INPUTS = 256, 4096
SQNR = "sqnr"


def formats(
    names: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=weight_formats, help="Formats to show; all families if none is named."),
    ] = None,
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of the README.")] = False,
) -> None:
    """List weight formats: bits per weight, times smaller than BF16 at several densities, and SQNR.

    The signal-to-quantisation-noise ratio is taken on 256 × 4096 normal weights, dense. Below 100 % density a
    bitmask is stored. A whole-row scale is shared by 4096 inputs.

    Example: tilepress formats int4:g32 int4:g128 mxfp4
    """
    from ..formats import parse_weight, weight_names

    recorder = Recorder()
    rows = []
    chosen = [parse_weight(name) for name in names or weight_names()]
    with progress(json) as bar:
        figures_of = {format: _figures(format) for format in bar.track(chosen, description="quantising")}
    for format, figures in figures_of.items():
        for metric, density, value, unit in figures:
            origin: Origin = "measured" if metric == SQNR else "model"
            recorder.add(metric, value, unit, origin, format=str(format), density=density)
        name = f"`{format}`" if markdown else str(format)
        rows.append([name, *(f"{value:.{1 if metric == SQNR else 2}f}" for metric, _, value, _ in figures)])
    columns = ["format", "bits per weight", *(f"× at {density:.0%}" for density in DENSITIES), "SQNR, dB"]
    if json:
        recorder.print_json()
    elif markdown:
        print(markdown_table(columns, rows))
    else:
        print_table("Weight formats: bits per weight, times smaller than BF16, SQNR", columns, rows)


def _figures(format: "WeightFormat") -> list[tuple[str, float, float, str]]:
    """(metric, density, value, unit) of one format."""
    factors = [
        ("compression", density, format.compression_factor(None if density == 1 else density, INPUTS), "x")
        for density in DENSITIES
    ]
    bits = ("bits_per_weight", 1.0, format.bits_per_weight(None, INPUTS), "bit")
    return [bits, *factors, (SQNR, 1.0, sqnr_of(format), "dB")]


def sqnr_of(format: "WeightFormat") -> float:
    """As kept of the families, else measured: that takes torch, and seconds."""
    kept = KEPT.get(str(format))
    return gaussian_sqnr(format) if kept is None else kept


def gaussian_sqnr(format: "WeightFormat") -> float:
    """Signal to quantisation noise, in decibels, on a fixed matrix of normal weights."""
    import numpy as np
    import torch

    from ..formats import dequantize, quantize
    from ..formats.tensors import sqnr

    weight = torch.from_numpy(np.random.default_rng(0).standard_normal((NEURONS, INPUTS), np.float32))
    return sqnr(weight, dequantize(quantize(weight, format), format))
