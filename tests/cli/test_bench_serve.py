"""`tilepress bench serve`, as a user types it, on a tiny model and a compressed one."""

from pathlib import Path

import pytest
from tests.cli.test_cli import assert_refused
from tests.figures import Figures
from tests.models import tiny

from tilepress.bench.arrivals import Lengths, Load, arrivals
from tilepress.cli import bench_serve
from tilepress.engine.native import NativeModel
from tilepress.models import compress_folder

LATENCIES = ("time_to_first_token", "time_between_tokens", "time_per_output_token", "request_time")
SMALL = ("--requests", 3, "--prompt", "6-12", "--tokens", "2-4")
LOAD = Load(requests=3, concurrency=2, prompt=Lengths(6, 12), tokens=Lengths(2, 4))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    dense, _ = tiny.save(tmp_path_factory.mktemp("models") / "dense")
    return str(dense)


def test_records_of_a_compressed_model(model, tmp_path, call_for_records):
    packed = str(tmp_path / "packed")
    compress_folder(model, packed, {"activations": {"format": "int8"}})
    figure = call_for_records("bench", "serve", packed, *SMALL, "--concurrency", 2)
    labels = {"model": packed, "concurrency": 2, "prompt": "6-12", "tokens": "2-4"}
    assert all(one.labels.items() >= labels.items() for one in figure.records)
    given = list(arrivals(LOAD, tiny.VOCABULARY))
    prompts, answers = sum(len(one.prompt) for one in given), sum(one.tokens for one in given)
    assert figure("requests") == 3 and figure("time") > 0
    assert figure("request_rate") * figure("time") == pytest.approx(3)
    assert figure("prompt_rate") * figure("time") == pytest.approx(prompts)
    assert figure("answer_rate") * figure("time") == pytest.approx(answers)
    for metric in LATENCIES:
        values = [figure(metric, statistic=statistic) for statistic in ("p50", "p95", "p99", "max")]
        assert values[0] > 0 and values == sorted(values)
    assert figure("request_time", statistic="max") <= figure("time")
    assert max(one.tokens for one in given) <= figure("steps") <= answers
    assert 0 < figure("scheduling_share") < 1
    assert figure("preemptions") == figure("prefix_tokens") == 0
    assert 0 < figure("most_pages") <= figure("pages")


def test_requests_at_a_rate_with_a_prefix(model, call_for_records):
    options = ("--requests", 3, "--rate", 50, "--prompt", 40, "--tokens", 2, "--prefix", 32)
    figure = call_for_records("bench", "serve", model, *options)
    assert figure.records[0].labels == {"model": model, "rate": 50.0, "prompt": 40, "tokens": 2, "prefix": 32}
    assert figure("prefix_tokens") == 2 * 32  # one page, which the first request computes


def test_tables_for_people_and_a_page(model, tmp_path, call):
    page = tmp_path / "served.html"
    done = call("bench", "serve", model, *SMALL, "--html", page)
    assert done.returncode == 0, done.stderr
    assert "3 requests, 8 at a time: prompts of 6-12 tokens, answers of 2-4" in done.stdout
    for text in ("time to first token", "p95", "request rate", "scheduling share", "most pages"):
        assert text in done.stdout
    html = page.read_text()
    assert "Latencies of requests that are served together" in html and "8 at a time" in html


def test_an_interrupt_shows_what_was_measured(model, call, monkeypatch):
    run, calls = NativeModel.run, []

    def interrupted(self, chunks):
        calls.append(chunks)
        if len(calls) == 8:  # the second request has a token, and the third will not come
            raise KeyboardInterrupt
        return run(self, chunks)

    monkeypatch.setattr(NativeModel, "run", interrupted)
    done = call("bench", "serve", model, "--requests", 3, "--concurrency", 1, "--prompt", 6, "--tokens", 3, "--json")
    assert done.returncode == 130 and done.stderr.splitlines()[-1] == "tilepress: interrupted"
    figure = Figures(done.stdout)
    assert figure("requests") == 1 and figure("answer_rate") * figure("time") == pytest.approx(4)


@pytest.mark.parametrize(
    "options, message",
    [
        (("--rate", "2", "--concurrency", "2"), "requests come at a rate or with a concurrency: give one of the two"),
        (("--rate", "0"), "a rate is 0.001 to 1e+06 requests a second, not 0"),
        (("--rate", "nan"), "a rate is 0.001 to 1e+06 requests a second, not nan"),
        (("--prompt", "9-"), "a length is a number of tokens, 128 say, or a range such as 32-512; not '9-'"),
        (("--tokens", "0"), "a length is a number of tokens, 128 say, or a range such as 32-512; not '0'"),
        (("--prefix", "129"), "a prefix of 129 tokens is longer than a prompt of 128"),
        (("--prompt", "60", "--tokens", "5"), "take 64 tokens, and 60 of a prompt and 5 of an answer were asked for"),
        (("--kv", "fp16"), "the engine has caches in float32, bf16 and packed formats, none in fp16"),
        (("--kv-memory", "some"), "a size of memory is like 4 GiB or 500 MB, not 'some'"),
        (("--concurrency", "0"), "--concurrency"),
        (("--requests", "0"), "--requests"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_what_is_wrong_is_said(model, call, options, message):
    done = call("bench", "serve", model, *options)
    assert_refused(done, message)
    if done.returncode == 1:
        assert done.stderr.startswith("tilepress: error: ") and len(done.stderr.splitlines()) == 1


def test_a_model_that_is_not_there(call):
    assert_refused(call("bench", "serve", "/no/such"), "'/no/such' is neither a folder")


def test_a_page_without_the_extra_is_refused_before_anything_is_measured(model, call, monkeypatch):
    def refuse(what):
        raise ValueError(f"{what} needs tilepress[lab]")

    monkeypatch.setattr("tilepress.cli.report.need_lab", refuse)
    monkeypatch.setattr(bench_serve, "_measured", lambda *_: pytest.fail("measured"))
    assert_refused(call("bench", "serve", model, "--html", Path("x.html")), "`tilepress bench serve --html` needs")
