"""`tilepress bench`: timings, against this machine's measured limit."""

from typing import Annotated

import typer

from .output import Json, Recorder, Threads, print_table, progress

DEFAULT_FORMATS = ["int4:g32", "int8:row", "mxfp4", "e4m3", "bf16"]
INTEGER_FORMATS = ["int4:g32", "int8:row"]

app = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure speed on this machine."""


@app.command()
def pack(
    formats: Annotated[list[str] | None, typer.Argument(help="Formats to measure.")] = None,
    neurons: Annotated[int, typer.Option(min=1, help="Rows of the matrix.")] = 14336,
    inputs: Annotated[int, typer.Option(min=1, help="Columns of the matrix.")] = 4096,
    density: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of weights that are not zero; 1 is dense.")
    ] = 0.5,
    repeats: Annotated[int, typer.Option(min=1, help="Runs; the median counts.")] = 5,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time packing and unpacking of one matrix, with the memory that packing takes at its peak.

    The input is bfloat16. Peak memory is what the process grew by while packing, as a multiple of the packed size;
    the input is not in it.

    Example: tilepress bench pack int4:g32 mxfp4 --density 0.5
    """
    from ..bench.packing import measure_packing

    recorder, rows = Recorder(), []
    with progress(json) as bar:
        for format in bar.track(formats or DEFAULT_FORMATS, description="packing"):
            figures = measure_packing(format, neurons, inputs, density, repeats, threads)
            for name, value, unit in figures:
                recorder.add(f"{format}.{neurons}x{inputs}.d{density:g}.{name}", value, unit)
            rows.append([format, *(f"{value:.3f}" for _, value, _ in figures)])
    if json:
        recorder.print_json()
    else:
        columns = ["format", "pack, s", "unpack, s", "size, MB", "peak memory, × size"]
        print_table(f"{neurons}×{inputs}, density {density:g}", columns, rows)


@app.command()
def linear(
    formats: Annotated[list[str] | None, typer.Argument(help="Integer formats to measure.")] = None,
    neurons: Annotated[int, typer.Option(min=1, help="Rows of the matrix.")] = 4096,
    inputs: Annotated[int, typer.Option(min=1, help="Columns of the matrix.")] = 4096,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Rows of activations; may be repeated.")] = None,
    density: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of weights kept; 1 is dense.")] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs; the median counts.")] = 50,
    json: Json = False,
    threads: Threads = None,
) -> None:
    """Time one linear layer with int8 activations beside torch's own, interleaved in one run.

    GB/s counts the bytes of the weights as stored; the share is of the read bandwidth measured in the same run. Weights
    rotate through four times the last-level cache. torch uses its own number of threads.

    Example: tilepress bench linear int4:g32 int8:row --batch 1 --batch 16
    """
    from ..bench.linear import measure_linear

    recorder, rows = Recorder(), []
    with progress(json) as bar:
        for size in bar.track(batch or [1], description="multiplying"):
            timings = measure_linear(formats or INTEGER_FORMATS, neurons, inputs, size, density, repeats, threads)
            for timing in timings:
                name = f"{timing.name}.{neurons}x{inputs}.d{density:g}.b{size}"
                recorder.add(f"{name}.time", timing.seconds * 1e6, "us")
                recorder.add(f"{name}.rate", timing.bytes_per_second / 1e9, "GB/s")
                recorder.add(f"{name}.share_of_read_bandwidth", timing.share_of_bandwidth, "")
                recorder.add(f"{name}.kernel", timing.kernel)
                figures = (timing.seconds * 1e6, timing.bytes_per_second / 1e9, timing.share_of_bandwidth * 100)
                ratios = [f"{peer.seconds / timing.seconds:.2f}" for peer in timings if peer.name.startswith("torch")]
                rows.append([timing.name, timing.kernel, str(size), *(f"{figure:.1f}" for figure in figures), *ratios])
    if json:
        recorder.print_json()
    else:
        peers = [f"× {timing.name}" for timing in timings if timing.name.startswith("torch")]
        columns = ["weights", "kernel", "batch", "µs", "GB/s", "% of read", *peers]
        print_table(f"{neurons}×{inputs}, density {density:g}", columns, rows, words=2)
