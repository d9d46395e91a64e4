"""Figures for Prometheus, beside what was asked and answered."""

from concurrent.futures import ThreadPoolExecutor

from prometheus_client.parser import text_string_to_metric_families
from tests.serve.conftest import served

PROMPT = list(range(5, 105))  # three whole pages, and more


def figures(one):
    """(name, other labels) → value."""
    text = one.http.get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    process = {sample.name: sample.value for sample in samples if sample.name.startswith("process_")}
    assert process["process_resident_memory_bytes"] > 1e8
    samples = [sample for sample in samples if sample.name not in process]
    assert all(sample.labels["model_name"] == "tiny" for sample in samples)
    assert all(sample.name.startswith("tilepress:") for sample in samples)
    return {(sample.name.removeprefix("tilepress:"), *others(sample.labels)): sample.value for sample in samples}


def others(labels):
    return [label for name, label in labels.items() if name != "model_name"]


def value(found, name):
    return found[name,]


def test_counts_and_times(folder):
    with served({"tiny": folder}) as one:
        one.ready()
        for _ in range(2):
            body = {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True, "n": 2}
            assert one.post("/v1/completions", body).json()["usage"]["completion_tokens"] == 12
        pages = one.engine.pool.pages
        assert one.settled(lambda: one.engine.idle)
        found = figures(one)
    assert value(found, "prompt_tokens_total") == value(found, "prefix_cache_queries_total") == 200
    assert value(found, "prefix_cache_hits_total") == 96
    assert value(found, "generation_tokens_total") == 24
    assert found["request_success_total", "length"] == 4
    for name, count in {
        "time_to_first_token_seconds": 2,
        "inter_token_latency_seconds": 20,
        "request_time_per_output_token_seconds": 4,
        "e2e_request_latency_seconds": 2,
    }.items():
        assert value(found, f"{name}_count") == count and value(found, f"{name}_sum") > 0
    assert found["cache_config_info", "32", str(pages)] == 1


def test_what_runs_and_what_waits(folder):
    with served({"tiny": folder}) as one, ThreadPoolExecutor(3) as threads:
        one.ready()
        one.engine.scheduler.max_sequences = 2
        body = {"prompt": PROMPT[:40], "max_tokens": 6, "ignore_eos": True}
        with one.held():
            going = [threads.submit(one.post, "/v1/completions", body) for _ in range(3)]
            assert one.settled(lambda: sum(one.engine.requests) == 3)
            found = figures(one)
            assert value(found, "num_requests_running") + value(found, "num_requests_waiting") == 3
            assert value(found, "num_requests_running") >= 1
            assert value(found, "kv_cache_usage_perc") >= 2 / one.engine.pool.pages
        assert all(reply.result().status_code == 200 for reply in going)
        assert one.settled(lambda: one.engine.idle)
        found = figures(one)
        assert value(found, "num_requests_running") == value(found, "num_requests_waiting") == 0
        assert value(found, "kv_cache_usage_perc") == 0
