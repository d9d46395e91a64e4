"""What `tilepress bench attention` measures, records and prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .output import Recorder, print_table, progress

if TYPE_CHECKING:
    from ..bench.attention import Result, Settings


def compare(shapes: Sequence[str], settings: "Settings", json: bool) -> None:
    """All shapes at all depths: records for machines or tables for people."""
    from ..bench.attention import measure, parse_heads

    heads = [parse_heads(shape) for shape in shapes]
    recorder, results = Recorder(), []
    with progress(json) as bar:
        task = bar.add_task("", total=len(heads) * len(settings.depths))
        for one in heads:
            for result in measure(one, settings, lambda text: bar.update(task, description=text)):
                bar.advance(task)
                results.append(result)
    for result in results:
        _record(recorder, result)
    if json:
        recorder.print_json()
    else:
        _print(results)


def _record(recorder: Recorder, result: "Result") -> None:
    where = f"{result.heads}.depth_{result.depth}"
    recorder.add(f"{where}.read_bandwidth", result.bandwidth / 1e9, "GB/s")
    for timing in result.timings:
        name = f"{timing.name}.{where}"
        recorder.add(f"{name}.time", timing.seconds, "s")
        recorder.add(f"{name}.size", timing.nbytes, "B")
        recorder.add(f"{name}.rate", timing.rate / 1e9, "GB/s")
        recorder.add(f"{name}.share_of_read_bandwidth", timing.share_of_bandwidth)
        for peer, ratio in result.over(timing).items() if not timing.is_peer else ():
            recorder.add(f"{name}.over.{peer}", ratio, "x")
    for peer, reason in result.refused.items():
        recorder.add(f"peer.{peer}.refused", reason)


def _print(results: "Sequence[Result]") -> None:
    peer = next((timing.name for timing in results[0].timings if timing.is_peer), None)
    columns = ["heads", "tokens", "cache", "step, ms", "MB", "GB/s", "% of read", *([f"× {peer}"] if peer else [])]
    rows = []
    for result in results:
        for timing in result.timings:
            ratio = [f"{result.over(timing)[peer]:.2f}"] if peer else []
            size = [f"{timing.nbytes / 1e6:.2f}", f"{timing.rate / 1e9:.2f}", f"{100 * timing.share_of_bandwidth:.1f}"]
            rows.append(
                [str(result.heads), str(result.depth), timing.name, f"{1e3 * timing.seconds:.3f}", *size, *ratio]
            )
    print_table("One token's attention, medians, all taking turns", columns, rows)
    for name, reason in results[0].refused.items():
        print(f"no peer here: {name}: {reason}")
