"""What `tilepress bench attention` measures, records and prints."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .output import Recorder, print_table, progress

if TYPE_CHECKING:
    from ..bench.attention import Result, Settings, Timing
    from ..records import Label


def compare(shapes: Sequence[str], settings: "Settings", refused: Mapping[str, str], json: bool) -> None:
    """All shapes at all depths: records for machines or tables for people. `refused`: peer → why it is not there."""
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
        _record(recorder, result, settings.prompt)
    for peer, reason in refused.items():
        recorder.add("peer_refused", reason, peer=peer)
    if json:
        recorder.print_json()
    else:
        _print(results, settings.prompt)
        for peer, reason in refused.items():
            print(f"no peer here: {peer}: {reason}")


def _record(recorder: Recorder, result: "Result", prompt: bool) -> None:
    where: dict[str, Label] = {"heads": str(result.heads), "prompt" if prompt else "depth": result.depth}
    if not prompt:
        recorder.add("read_bandwidth", result.bandwidth / 1e9, "GB/s", **where)
    for timing in result.timings:
        labels = {**timing.labels, **where}
        recorder.add("time", timing.seconds, "s", **labels)
        recorder.add("size", timing.nbytes, "B", **labels)
        if not prompt:
            recorder.add("rate", timing.rate / 1e9, "GB/s", **labels)
            recorder.add("share_of_read_bandwidth", timing.share_of_bandwidth, **labels)
        for peer, ratio in result.over(timing).items() if not timing.is_peer else ():
            recorder.add("speedup", ratio, "x", **labels, peer=peer)
    if (best := result.best_peer) is not None:
        recorder.add("best_peer", best.name, **where)


def _print(results: "Sequence[Result]", prompt: bool) -> None:
    columns = ["heads", "tokens", "cache", "prompt, ms" if prompt else "step, ms", "MB"]
    columns += [] if prompt else ["GB/s", "% of read"]
    columns += [] if results[0].best_peer is None else ["× torch's best"]
    title = f"{'A prompt' if prompt else 'One token'}'s attention, medians, all taking turns"
    print_table(title, columns, [_row(result, timing, prompt) for result in results for timing in result.timings])


def _row(result: "Result", timing: "Timing", prompt: bool) -> list[str]:
    best = result.best_peer
    ratio = [] if best is None else [f"{best.seconds / timing.seconds:.2f}" + (" (best)" if timing is best else "")]
    size = [f"{timing.nbytes / 1e6:.2f}"]
    size += [] if prompt else [f"{timing.rate / 1e9:.2f}", f"{100 * timing.share_of_bandwidth:.1f}"]
    return [str(result.heads), str(result.depth), timing.name, f"{1e3 * timing.seconds:.3f}", *size, *ratio]
