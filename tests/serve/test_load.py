"""Clients under load, as `bench serve` has them, against our server."""

import pytest
from tests.serve.conftest import served

from tilepress.bench.arrivals import Lengths, Load
from tilepress.bench.server_load import SLOW_PART, Clients, Server, measure_server
from tilepress.serve.limits import Limits

LOAD = Load(requests=24, concurrency=6, prompt=Lengths(5, 40), tokens=Lengths(4, 12))


def test_every_answer_is_whole(running):
    ended = []
    result = measure_server(Server(running.url), LOAD, step=lambda: ended.append(1))
    assert (result.requests, result.failed, result.left, len(ended)) == (24, 0, 0, 24)
    assert not result.interrupted and result.reason is None
    assert 24 * 4 <= result.answer_tokens <= 24 * 12 and 24 * 5 <= result.prompt_tokens <= 24 * 40
    assert len(result.latencies["request_time"]) == 24
    first, whole = result.latencies["time_to_first_token"], result.latencies["request_time"]
    assert 0 < len(first) <= 24  # an answer may be of special tokens, which have no text
    assert min(first) > 0 and max(first) <= max(whole) <= result.seconds


def test_some_clients_go(running):
    result = measure_server(Server(f"{running.url}/v1/"), LOAD, Clients(leaving=0.5))
    assert result.failed == 0 and 0 < result.left < 24 and result.requests + result.left == 24
    assert running.settled(lambda: running.engine.idle and not running.engine.stats.pages_used)


def test_some_clients_are_slow(running):
    result = measure_server(Server(running.url), LOAD, Clients(slow=0.5))
    assert (result.requests, result.failed) == (24, 0) and 0 < len(result.latencies["request_time"]) < 24
    assert result.seconds > 4 * SLOW_PART > max(result.latencies["time_between_tokens"])


def test_answers_are_those_of_requests_alone(running):
    result = measure_server(Server(running.url), LOAD, Clients(checked=30))
    assert (result.checked, result.different) == (24, 0)


def test_memory_of_the_server(running):
    result = measure_server(Server(running.url), LOAD)
    assert 1e8 < result.memory_by_minutes[1] < 1e11


def test_what_is_refused_is_counted(folder):
    load = Load(requests=40, rate=1e5, prompt=Lengths(40, 40), tokens=Lengths(30, 30))
    with served({"tiny": folder}, limits=Limits(requests=2)) as one:
        result = measure_server(Server(one.ready().url), load)
    assert result.failed > 0 and result.requests + result.failed == 40 and "status 429" in result.reason


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://here", "http://"])
def test_addresses_that_are_none(url):
    with pytest.raises(ValueError, match="a server's address is like"):
        Server(url)


@pytest.mark.parametrize("shares", [{"leaving": 1.5}, {"slow": -0.1}, {"leaving": 0.6, "slow": 0.6}])
def test_shares_that_are_none(shares):
    with pytest.raises(ValueError, match="shares of the requests"):
        Clients(**shares)
