"""What `tilepress bench serve` measures, records and prints."""

from pathlib import Path
from typing import TYPE_CHECKING

from .output import Recorder, figure_text, hush_transformers, metric_text, print_table, progress
from .report import check_page, write_page

if TYPE_CHECKING:
    from ..bench.arrivals import Load
    from ..bench.serve import Result
    from ..models.checkpoint_checks import Allowed
    from ..records import Label


def serve(
    model: str,
    load: "Load",
    kv: str | None,
    kv_memory: str,
    threads: int | None,
    allowed: "Allowed",
    json: bool,
    html: Path | None,
) -> None:
    """Records for machines or tables for people, and a page if there is a path for it. After an interrupt too, which
    then goes on."""
    check_page(html, "bench serve")
    hush_transformers()
    result = _measured(model, load, kv, kv_memory, threads, allowed, json)
    recorder = Recorder("measured", **_labels(model, load, kv))
    _record(recorder, result)
    write_page(html, f"{model}: {load}", recorder.records, with_explorer=False)
    if json:
        recorder.print_json()
    else:
        _print(recorder, result, f"{model}: {load}")
    if result.interrupted:
        raise KeyboardInterrupt


def _measured(
    model: str, load: "Load", kv: str | None, kv_memory: str, threads: int | None, allowed: "Allowed", quiet: bool
) -> "Result":
    from ..bench.serve import measure, open_engine

    with progress(quiet) as bar:
        task = bar.add_task(f"loading {model}", total=load.requests)
        engine = open_engine(model, kv=kv, kv_memory=kv_memory, threads=threads, allowed=allowed)
        bar.update(task, description="requests")
        return measure(engine, load, lambda: bar.advance(task))


def _labels(model: str, load: "Load", kv: str | None) -> "dict[str, Label]":
    labels = {
        "model": model,
        "kv": kv,
        "rate": load.rate,
        "concurrency": load.concurrency,
        "prompt": load.prompt.label,
        "tokens": load.tokens.label,
        "prefix": load.prefix or None,
    }
    return {name: label for name, label in labels.items() if label is not None}


def _record(recorder: Recorder, result: "Result") -> None:
    from ..bench.serve import percentiles

    recorder.add("requests", result.requests, "request")
    recorder.add("time", result.seconds, "s")
    recorder.add("request_rate", result.requests / result.seconds, "request/s")
    recorder.add("prompt_rate", result.prompt_tokens / result.seconds, "token/s")
    recorder.add("answer_rate", result.answer_tokens / result.seconds, "token/s")
    for metric, seconds in result.latencies.items():
        for statistic, value in percentiles(seconds).items():
            recorder.add(metric, value, "s", statistic=statistic)
    recorder.add("steps", result.steps)
    recorder.add("scheduling_share", result.scheduling_share)
    recorder.add("prefix_tokens", result.prefix_tokens, "token")
    recorder.add("preemptions", result.preemptions)
    recorder.add("most_pages", result.most_pages, "page")
    recorder.add("pages", result.pages, "page")


def _print(recorder: Recorder, result: "Result", title: str) -> None:
    from ..bench.serve import PERCENTILES, percentiles

    latencies = {metric: percentiles(seconds) for metric, seconds in result.latencies.items() if seconds}
    rows = [
        [metric.replace("_", " "), *(f"{1e3 * value:.1f}" for value in values.values())]
        for metric, values in latencies.items()
    ]
    print_table(title, ["latencies, ms", *PERCENTILES], rows)
    others = [one for one in recorder.records if "statistic" not in one.labels]
    figures = [[metric_text(one, one.labels), figure_text(one.value), one.unit] for one in others]
    print_table("all requests together", ["what", "value", "unit"], figures)
