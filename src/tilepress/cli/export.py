"""`tilepress export`: a compressed model in, files for other tools out."""

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, Recorder, print_table


def export(
    folder: Annotated[Path, typer.Argument(help="A folder that `tilepress compress` wrote.")],
    to: Annotated[str, typer.Option(help="gguf (one file, for llama.cpp) or compressed-tensors (a folder, for vLLM).")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file or folder to write.")],
    json: Json = False,
) -> None:
    """Write a compressed model for other tools, with the same codes and scales: nothing is rounded.

    Example: tilepress export small --to gguf -o small.gguf
    """
    from ..models.export import export_folder

    done = export_folder(folder, out, to)
    recorder = Recorder(model=str(out), target=to)
    recorder.add("source_size", done.source_bytes, "B")
    recorder.add("size", done.nbytes, "B")
    recorder.add("exported_layers", done.layers)
    for note in done.notes:
        recorder.add("export_note", note)
    if json:
        recorder.print_json()
        return
    rows = [
        ["size before", f"{done.source_bytes / 1e6:.1f} MB"],
        ["size after", f"{done.nbytes / 1e6:.1f} MB"],
        ["packed layers", str(done.layers)],
    ]
    print_table(str(out), ["", ""], rows)
    for note in done.notes:
        typer.echo(note, err=True)
