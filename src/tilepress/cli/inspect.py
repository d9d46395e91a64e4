"""`tilepress inspect`: what a model's folder, a GGUF file or a packed file holds."""

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, Recorder, print_table


def inspect(
    path: Annotated[
        Path, typer.Argument(help="A model's folder or name, compressed or dense; a GGUF file; or a packed file.")
    ],
    json: Json = False,
) -> None:
    """Show what a model's folder, a GGUF file or a packed file holds: layers, formats, bytes, origin.

    Of a folder that `tilepress compress` wrote: layers by kind with format, density and bits per weight, the recipe,
    what it was made from, and whether SHA256SUMS holds, for which every byte is read; it ends with exit code 1 if
    not. Of another model's folder or a GGUF file: types, sizes, and what `compress` would pack, from headers alone. Of
    a packed file: its matrices, each checked.

    Example: tilepress inspect layer.safetensors
    """
    path = path if path.exists() else _named(path)
    if path.is_dir():
        _inspect_folder(path, json)
    elif path.suffix.lower() == ".gguf":
        from ..models.inspection.gguf_file import read_gguf
        from .inspect_model import show_dense

        show_dense(path, read_gguf(path), json)
    else:
        _inspect_packed(path, json)


def _named(name: Path) -> Path:
    """The GGUF file of `smollm2-135m` and other models that have a name here."""
    from ..models.embedded import named_model_path
    from ..models.named import NAMED

    if str(name) in NAMED:
        return named_model_path(str(name))
    raise ValueError(f"there is no file or folder {name}: give one that is here, or `tilepress pull` it first")


def _inspect_folder(folder: Path, json: bool) -> None:
    from ..models.inspection.compressed import is_compressed_config, read_compressed
    from ..models.inspection.dense import read_dense
    from ..models.inspection.weights import read_json
    from .inspect_model import show_compressed, show_dense

    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} is a folder without a config.json, so it holds no model")
    if is_compressed_config(read_json(folder / "config.json", folder)):
        show_compressed(read_compressed(folder), json)
    else:
        show_dense(folder, read_dense(folder), json)


def _inspect_packed(path: Path, json: bool) -> None:
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
