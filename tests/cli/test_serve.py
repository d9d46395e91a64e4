"""`tilepress serve`: what is wrong is said before anything is loaded. tests/serve has servers."""

import socket
from importlib.util import find_spec

import pytest
from tests.cli.test_cli import assert_refused

from tilepress import _extras
from tilepress.cluster import replicas
from tilepress.serve import server


@pytest.fixture
def started(monkeypatch):
    """What would be served, and where."""
    calls = []
    monkeypatch.setattr(server, "serve", lambda service, address: calls.append((service, address)))
    return calls


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ((), "give a model to serve"),
        (("a", "a"), "two models have the same name"),
        (("a", "--alias", "a=b"), "two models have the same name"),
        (("--alias", "fast"), "--alias has a name and a model, fast=FOLDER say, not 'fast'"),
        (("a", "--memory", "some"), "a size of memory is like 4 GiB or 500 MB, not 'some'"),
        (("a", "--kv-memory", "some"), "a size of memory is like 4 GiB or 500 MB, not 'some'"),
        (("a", "--body", "some"), "a size of memory is like 4 GiB or 500 MB, not 'some'"),
        (("a", "--api-key-file", "/no/such/file"), "/no/such/file: No such file"),
        (("a", "--port", "65536"), "--port"),
        (("a", "--timeout", "0"), "--timeout"),
        (("a", "--replicas", "2"), "are of servers on a Ray cluster: give --ray ADDRESS"),
        (("--stop",), "are of servers on a Ray cluster: give --ray ADDRESS"),
        (("a", "--ray", "auto", "--replicas", "two"), "--replicas is MIN or MIN:MAX, 1:4 say, not 'two'"),
        (("a", "--ray", "auto", "--replicas", "3:2"), "there is at least 1 replica, and as many at most: not 3:2"),
        (("a", "--ray", "local", "--stop"), "a Ray of its own ends with its command: --stop is for clusters"),
    ],
)
def test_what_is_wrong_is_said(call, started, typed, message):
    assert_refused(call("serve", *typed), message)
    assert not started


@pytest.fixture
def deployed(monkeypatch):
    """What would be served on Ray, and where."""
    calls = []
    monkeypatch.setattr(replicas, "serve_replicas", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(replicas, "stop_replicas", lambda *arguments: calls.append(arguments))
    return calls


def test_options_reach_replicas(call, deployed, started, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("me: a-secret-key")
    typed = ["serve", "a", "--ray", "head:6379", "--replicas", "2:5", "--ongoing", 7, "--threads", 3, "--drain", 9]
    done = call(*typed, "--kv", "bf16", "--body", "1 MiB", "--memory", "1 GiB", "--api-key-file", keys, "--json")
    assert done.returncode == 0 and not done.stderr and not started
    ((settings, scale, *where),) = deployed
    assert where == ["head:6379", "127.0.0.1", 8000]
    assert scale == replicas.Scale(2, 5, 7, 3, 9.0)
    assert settings.models == {"a": "a"} and settings.options.kv == "bf16" and settings.memory == 1 << 30
    assert settings.limits.body == 1 << 20 and settings.keys.name("Bearer a-secret-key") == "me" and settings.logs_json


def test_replicas_are_ended_by_address(call, deployed):
    assert call("serve", "--ray", "head:6379", "--stop").returncode == 0
    assert deployed == [("head:6379",)]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (("--ray", "auto", "--body", "17 MiB"), "on Ray a request has at most 16777216 bytes: give a smaller --body"),
        (("--ray", "auto", "--port", 0), "on a cluster the port is one for all that come: give it"),
        (("--ray", "nowhere"), "an address is auto, host:port or ray://host:port"),
        (("--ray", "127.0.0.1:1"), "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_with_replicas_is_said(call, typed, message):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    assert_refused(call("serve", "a", *typed), message)


def test_a_port_that_is_taken_is_said_before_a_ray_is_started(call):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = call("serve", "a", "--ray", "local", "--port", taken.getsockname()[1])
    assert_refused(done, "Address already in use")


def test_without_ray(call, monkeypatch):
    monkeypatch.setattr(_extras, "find_spec", lambda name: None if name == "ray" else find_spec(name))
    done = call("serve", "a", "--ray", "auto")
    assert (
        done.stderr == "tilepress: error: `tilepress serve --ray` needs the ray extra: pip install 'tilepress[ray]'\n"
    )


def test_options_reach_the_server(call, started, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("me: a-secret-key")
    typed = ["serve", "a", "--alias", "b=c", "--memory", "1 GiB", "--kv", "bf16", "--requests", 5, "--timeout", 7]
    typed += ["--answers", 2, "--body", "1 MiB", "--cors", "https://x.example", "--drain", 1, "--host", "0.0.0.0"]
    done = call(*typed, "--api-key-file", keys, "--threads", 1, "--longest", 99, "--ranks", 2, "--json")
    assert done.returncode == 0 and not done.stderr
    ((service, address),) = started
    library, limits = service.library, service.limits
    assert library.models == {"a": "a", "b": "c"} and library.memory == 1 << 30
    assert (library.options.kv, library.options.threads, library.options.longest) == ("bf16", 1, 99)
    assert library.options.ranks == 2
    assert (limits.requests, limits.seconds, limits.answers, limits.body) == (5, 7.0, 2, 1 << 20)
    assert (address.host, address.drain, address.origins, address.logs_json) == (
        "0.0.0.0", 1.0, ("https://x.example",), True,
    )  # fmt: skip
    assert service.keys.name("Bearer a-secret-key") == "me"


@pytest.mark.parametrize(
    ("host", "warns"), {"0.0.0.0": True, "127.0.0.1": False, "localhost": False, "::1": False}.items()
)
def test_servers_that_all_may_ask_are_warned_of(call, started, host, warns):
    assert ("warning: everybody who reaches" in call("serve", "a", "--host", host).stderr) == warns
    assert len(started) == 1


def test_without_the_extra(call, monkeypatch):
    monkeypatch.setattr(_extras, "find_spec", lambda name: None)
    done = call("serve", "a")
    assert done.stderr == "tilepress: error: `tilepress serve` needs the serve extra: pip install 'tilepress[serve]'\n"
