"""`tilepress serve`: what is wrong is said before anything is loaded. tests/serve has servers."""

import pytest
from tests.cli.test_cli import assert_refused

from tilepress import _extras
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
    ],
)
def test_what_is_wrong_is_said(call, started, typed, message):
    assert_refused(call("serve", *typed), message)
    assert not started


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
