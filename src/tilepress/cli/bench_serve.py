"""What `tilepress bench serve` measures, records and prints."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .output import Recorder, figure_text, hush_transformers, metric_text, print_table, progress
from .report import check_page, write_page

if TYPE_CHECKING:
    from ..bench.arrivals import Load
    from ..bench.serve import Result
    from ..bench.server_load import Clients, ServerResult
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
    _record_engine(recorder, result)
    _give(recorder, result, f"{model}: {load}", json, html)


def ask_server(url: str, load: "Load", clients: "Clients", json: bool, html: Path | None) -> None:
    """The same for a server at an address."""
    from ..bench.server_load import Server, measure_server

    check_page(html, "bench serve")
    with progress(json) as bar:
        task = bar.add_task("requests", total=load.requests)
        result = measure_server(Server(url), load, clients, lambda: bar.advance(task))
    recorder = Recorder("measured", **_labels(url, load, None))
    _record(recorder, result)
    recorder.add("failed", result.failed, "request")
    recorder.add("disconnected", result.left, "request")
    if clients.checked:
        recorder.add("checked", result.checked, "request")
        recorder.add("different", result.different, "request")
    for minutes, nbytes in result.memory_by_minutes.items():
        recorder.add("server_memory", nbytes, "B", minutes=minutes)
    if result.reason is not None:
        typer.echo(f"the first request that failed: {result.reason}", err=True)
    _give(recorder, result, f"{url}: {load}", json, html)


def is_server(model: str) -> bool:
    return model.startswith(("http://", "https://"))


def _give(recorder: Recorder, result: "Result | ServerResult", title: str, json: bool, html: Path | None) -> None:
    write_page(html, title, recorder.records, with_explorer=False)
    if json:
        recorder.print_json()
    else:
        _print(recorder, result, title)
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


def _record(recorder: Recorder, result: "Result | ServerResult") -> None:
    from ..bench.serve import percentiles

    recorder.add("requests", result.requests, "request")
    recorder.add("time", result.seconds, "s")
    recorder.add("request_rate", result.requests / result.seconds, "request/s")
    recorder.add("prompt_rate", result.prompt_tokens / result.seconds, "token/s")
    recorder.add("answer_rate", result.answer_tokens / result.seconds, "token/s")
    for metric, seconds in result.latencies.items():
        for statistic, value in percentiles(seconds).items():
            recorder.add(metric, value, "s", statistic=statistic)


def _record_engine(recorder: Recorder, result: "Result") -> None:
    recorder.add("steps", result.steps)
    recorder.add("scheduling_share", result.scheduling_share)
    recorder.add("prefix_tokens", result.prefix_tokens, "token")
    recorder.add("preemptions", result.preemptions)
    recorder.add("most_pages", result.most_pages, "page")
    recorder.add("pages", result.pages, "page")


def _print(recorder: Recorder, result: "Result | ServerResult", title: str) -> None:
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
