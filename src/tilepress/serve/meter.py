"""Metrics of engines, named and meant as in vLLM and the Kubernetes inference gateway's protocol of model servers."""

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..engine import Engine, Stats

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)
_LABELS = ["model_name"]


class Metrics:
    """Of a server: counters and histograms by model, and gauges read when somebody asks."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts that were computed or found.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens of answers.")
        self.prefix_queries = self._counter("prefix_cache_queries", "Tokens of prompts that were looked for in pages.")
        self.prefix_hits = self._counter("prefix_cache_hits", "Tokens of prompts that were found in pages.")
        self.preemptions = self._counter("num_preemptions", "Sequences that lost their pages and were computed again.")
        self.finished = Counter(
            "tilepress:request_success",
            "Answers that ended, by reason.",
            [*_LABELS, "finished_reason"],
            registry=self.registry,
        )
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token."
        )
        self.between_tokens = self._histogram("inter_token_latency_seconds", "Between two tokens of an answer.")
        self.per_token = self._histogram(
            "request_time_per_output_token_seconds", "Of each answer: mean time per token after the first."
        )
        self.request_time = self._histogram("e2e_request_latency_seconds", "From a request's arrival to its end.")

    def watch(self, engines: Callable[[], Mapping[str, Engine]]) -> None:
        """Gauges are read of these engines, by the names of their models."""
        self.registry.register(_Gauges(engines))

    def _counter(self, name: str, words: str) -> Counter:
        return Counter(f"tilepress:{name}", words, _LABELS, registry=self.registry)

    def _histogram(self, name: str, words: str) -> Histogram:
        return Histogram(f"tilepress:{name}", words, _LABELS, buckets=_SECONDS, registry=self.registry)


@dataclass
class Times:
    """Of a request, in seconds: when it came, and the first and the last token of each answer, with their number."""

    arrived: float = field(default_factory=time.monotonic)
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    tokens: Counts[int] = field(default_factory=Counts)


class Meter:
    """Measures one engine, in the thread that steps it."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics, self._name = metrics, name
        self._answer_tokens = self._prefix_tokens = self._preemptions = 0

    def stepped(self, stats: Stats) -> None:
        metrics, name = self._metrics, self._name
        metrics.generation_tokens.labels(name).inc(stats.answer_tokens - self._answer_tokens)
        metrics.prefix_hits.labels(name).inc(stats.prefix_tokens - self._prefix_tokens)
        metrics.preemptions.labels(name).inc(stats.preemptions - self._preemptions)
        self._answer_tokens, self._prefix_tokens = stats.answer_tokens, stats.prefix_tokens
        self._preemptions = stats.preemptions

    def token(self, times: Times, answer: int, prompt_tokens: int, now: float) -> None:
        """A token of an answer; the request's first one says that its prompt was computed."""
        metrics, name = self._metrics, self._name
        if not times.last:
            metrics.first_token.labels(name).observe(now - times.arrived)
            metrics.prompt_tokens.labels(name).inc(prompt_tokens)
            metrics.prefix_queries.labels(name).inc(prompt_tokens)
        if answer in times.last:
            metrics.between_tokens.labels(name).observe(now - times.last[answer])
        times.first.setdefault(answer, now)
        times.last[answer] = now
        times.tokens[answer] += 1

    def answered(self, times: Times, answer: int, reason: str) -> None:
        self._metrics.finished.labels(self._name, reason).inc()
        if times.tokens[answer] > 1:
            seconds = (times.last[answer] - times.first[answer]) / (times.tokens[answer] - 1)
            self._metrics.per_token.labels(self._name).observe(seconds)

    def finished(self, times: Times, now: float) -> None:
        self._metrics.request_time.labels(self._name).observe(now - times.arrived)


class _Gauges(Collector):
    def __init__(self, engines: Callable[[], Mapping[str, Engine]]) -> None:
        self._engines = engines

    def collect(self) -> Iterator[Metric]:
        engines = self._engines().items()
        requests = {name: engine.requests for name, engine in engines}
        running = {name: one.running for name, one in requests.items()}
        waiting = {name: one.waiting for name, one in requests.items()}
        usage = {name: engine.stats.pages_used / engine.pool.pages for name, engine in engines}
        yield _gauge("num_requests_running", "Requests that are computed.", running.items())
        yield _gauge("num_requests_waiting", "Requests that wait for pages or a place.", waiting.items())
        yield _gauge("kv_cache_usage_perc", "Share of pages that are in use, 0 to 1.", usage.items())
        config = GaugeMetricFamily(
            "tilepress:cache_config_info", "Pages.", labels=[*_LABELS, "block_size", "num_gpu_blocks"]
        )
        for name, engine in engines:
            config.add_metric([name, str(engine.runner.page_tokens), str(engine.pool.pages)], 1)
        yield config


def _gauge(name: str, words: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"tilepress:{name}", words, labels=_LABELS)
    for model, value in values:
        family.add_metric([model], value)
    return family
