"""`tilepress inspect`: what a packed file holds, after checking every byte of it."""

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, Recorder, print_table


def inspect(
    path: Annotated[Path, typer.Argument(help="A file written by tilepress.")],
    json: Json = False,
) -> None:
    """Check a packed file and list its matrices: format, shape, density, bytes.

    Example: tilepress inspect layer.safetensors
    """
    from ..tiles import load

    recorder = Recorder()
    rows = []
    for name, matrix in load(path).items():
        facts: list[tuple[str, str | int | float, str]] = [
            ("format", str(matrix.format), ""),
            ("rows", matrix.rows, "neurons"),
            ("cols", matrix.cols, "inputs"),
            ("density", matrix.density, ""),
            ("size", matrix.nbytes, "B"),
            ("padding", matrix.padding_bytes, "B"),
            ("bits_per_weight", matrix.bits_per_weight, "bit"),
            ("compression", matrix.compression_factor, "x"),
        ]
        for metric, value, unit in facts:
            recorder.add(metric, value, unit, matrix=name)
        rows.append([name, *(f"{value:.3f}" if isinstance(value, float) else str(value) for _, value, _ in facts)])
    if json:
        recorder.print_json()
    else:
        columns = [
            "matrix",
            "format",
            "neurons",
            "inputs",
            "density",
            "bytes",
            "padding",
            "bits/weight",
            "× BF16",
        ]
        print_table(f"{path}: whole, {len(rows)} matrices", columns, rows, words=2)
