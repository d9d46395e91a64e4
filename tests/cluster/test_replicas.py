"""Replicas on Ray Serve: the same answers as a server's, the same beginnings to the same replica, and nothing lost when
replicas die or are replaced."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.evaluate.tiny import tiny_tokenizer
from tests.serve.conftest import CONFIG, HELLO, TEMPLATE, folder, served
from tilepress.cluster import ClusterError

__all__ = ["folder"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
STARTED = re.compile(r"serving on (http://127\.0\.0\.1:\d+), by Ray at (127\.0\.0\.1:\d+)")
TOKEN = secrets.token_hex(16)
OPTIONS = ("--kv", "float32", "--kv-memory", "8 MB", "--embeddings")
COMPLETION = {"prompt": "hello there", "max_tokens": 12, "seed": 3}
LONG = {"prompt": "once upon a time", "max_tokens": 480, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def other(folder):
    """Another model of the same size."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    path = Path(folder).with_name("other")
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**CONFIG)).save_pretrained(path)
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    return str(path)


def tilepress(*words):
    """The command, started. Its Ray lets in who has the token of these tests."""
    return subprocess.Popen(
        [sys.executable, "-c", "from tilepress.cli import main; main()", *words],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN},
    )


def serve(model, *words):
    return tilepress("serve", "--alias", f"tiny={model}", "--replicas", "2", "--drain", "20", *OPTIONS, *words)


class Command:
    """`tilepress serve --ray local`. url: where it serves. ray: the address of its Ray."""

    def __init__(self, model):
        self.process = serve(model, "--ray", "local", "--port", "0")
        said = ""
        while not (match := STARTED.search(said)):
            line = self.process.stderr.readline()
            assert line, said
            said += line
        self.url, self.ray = match.groups()
        self.http = httpx.Client(base_url=self.url, timeout=120)

    def post(self, body, path="/v1/completions"):
        return self.http.post(path, json=body)

    def lines(self, body):
        """What a stream has, and which replica sends it."""
        return self.http.stream("POST", "/v1/completions", json=body)

    def figure(self, name):
        """Replica → figure, of those that are running."""
        families = text_string_to_metric_families(self.http.get("/metrics").text)
        return {one.labels["replica"]: one.value for family in families for one in family.samples if one.name == name}

    def pid(self, replica):
        """Of the replica's process: the one that writes its log."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        (pid,) = [pid for pid in pids if _writes(pid, f"replica_tilepress_Replica_{replica}.log")]
        assert self.process.pid in _ancestors(pid)
        return pid


def _stat(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _writes(pid, log):
    with suppress(OSError):
        for one in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it was closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{one}").endswith(log):
                    return True
    return False


def _ancestors(pid):
    while pid > 1:
        pid = int(_stat(pid)[1])
        yield pid


@pytest.fixture(scope="module")
def replicas(folder):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    command = Command(folder)
    try:
        yield command
    finally:
        command.http.close()
        command.process.send_signal(signal.SIGTERM)
        try:
            said = command.process.communicate(timeout=90)[1]
        finally:
            command.process.kill()
        assert command.process.returncode == 0, said


def without_ids(reply):
    drop = {"id", "created"}
    return {name: value for name, value in reply.json().items() if name not in drop}


def events(lines):
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def text(pieces):
    return "".join(choice["text"] for piece in pieces for choice in piece["choices"])


def replica(reply):
    return reply.headers["x-tilepress-replica"]


def test_answers_are_those_of_a_server(replicas, folder):
    asked = [
        ("/v1/completions", COMPLETION),
        ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 5, "temperature": 0}),
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 8, "seed": 1, "logprobs": True}),
        ("/v1/embeddings", {"input": "hello"}),
        ("/tokenize", {"prompt": "hello"}),
        ("/v1/completions", {"prompt": "a", "temperature": 9}),
        ("/v1/completions", {"prompt": "a", "model": "nobody"}),
        ("/v1/completions", ["no object"]),
        ("/nowhere", {}),
    ]
    with served({"tiny": folder}) as server:
        server.ready()
        for path, body in asked:
            ours, theirs = replicas.post(body, path), server.post(path, body)
            assert (ours.status_code, without_ids(ours)) == (theirs.status_code, without_ids(theirs))
        for path in ("/", "/v1/models", "/openapi.json", "/health", "/ready"):
            ours, theirs = replicas.http.get(path), server.http.get(path)
            assert (ours.status_code, ours.content) == (theirs.status_code, theirs.content)
        for path in ("/v1/completions", "/v1/chat/completions"):
            body = {**COMPLETION, "messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
            ours, theirs = replicas.post(body, path).text, server.post(path, body).text
            assert re.sub(r'"(id|created)":[^,]*,', "", ours) == re.sub(r'"(id|created)":[^,]*,', "", theirs)
        no_json = {"content": b"{}", "headers": {"Content-Type": "text/plain"}}
        assert replicas.http.post("/tokenize", **no_json).json() == server.http.post("/tokenize", **no_json).json()


def test_a_body_too_large_for_any_replica_is_refused(replicas):
    reply = replicas.http.post("/tokenize", content=b" " * (17 << 20), headers={"Content-Type": "application/json"})
    assert reply.status_code == 413 and reply.json()["error"]["code"] == "request_too_large"


def test_the_same_beginning_meets_one_replica(replicas):
    chats = [[{"role": "user", "content": f"{number}: "}] for number in range(12)]
    first = [replicas.post({"messages": chat, "max_tokens": 1}, "/v1/chat/completions") for chat in chats]
    grown = [[*chat, {"role": "assistant", "content": "a"}, *HELLO] for chat in chats]
    again = [replicas.post({"messages": chat, "max_tokens": 1}, "/v1/chat/completions") for chat in grown]
    assert [*map(replica, first)] == [*map(replica, again)]
    assert len({*map(replica, first)}) == 2


def test_a_hot_beginning_spreads(replicas):
    body = {**LONG, "n": 2, "stream": False}
    with ThreadPoolExecutor(32) as threads:
        answers = [*threads.map(lambda _: replicas.post(body), range(32))]
    assert len({*map(replica, answers)}) == 2


def test_a_client_that_goes_ends_its_request(replicas):
    before = sum(replicas.figure("tilepress:generation_tokens_total").values())
    with replicas.lines({**LONG, "n": 8}) as stream:
        next(stream.iter_lines())
    for _ in range(200):
        if not sum(replicas.figure("tilepress:num_requests_running").values()):
            break
        time.sleep(0.05)
    computed = sum(replicas.figure("tilepress:generation_tokens_total").values()) - before
    assert sum(replicas.figure("tilepress:num_requests_running").values()) == 0 and computed < 8 * 480


def test_all_listen_at_this_machine_alone(replicas):
    shown = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [
        line for line in shown for pid in re.findall(r"pid=(\d+)", line) if replicas.process.pid in _ancestors(int(pid))
    ]
    assert len(ours) > 5
    assert all("127.0.0.1" in line.split()[3] for line in ours)


def test_replicas_are_replaced_and_no_request_fails(replicas, folder, other):
    greedy = {"prompt": "number", "max_tokens": 12, "temperature": 0}
    old = replicas.post(greedy).json()["choices"][0]["text"]
    done, statuses, texts = [], Counter(), Counter()

    def ask(stream):
        while not done:
            reply = replicas.post({**greedy, "stream": stream})
            statuses[reply.status_code] += 1
            texts[text(events(reply.text.splitlines()) if stream else [reply.json()])] += 1
            time.sleep(0.2)  # a replica that starts needs the CPUs

    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask, stream) for stream in (False, True)]
        update = serve(other, "--ray", replicas.ray, "--port", replicas.url.rpartition(":")[2])
        try:
            said = update.communicate(timeout=300)[1]
        finally:
            update.kill()
            done.append(True)
        assert [one.result() for one in asking] == [None] * 2
    assert update.returncode == 0 and STARTED.search(said), said
    new = replicas.post(greedy).json()["choices"][0]["text"]
    assert set(statuses) == {200} and set(texts) == {old, new} and old != new


def test_a_replica_that_dies(replicas):
    """What has begun ends with an error; what has not is answered by another replica, as it would have been."""
    whole = {**LONG, "stream": False, "max_tokens": 5, "seed": 1}
    expected = replicas.post(whole)
    pid = replicas.pid(replica(expected))
    with replicas.lines({**LONG, "n": 8}) as stream, ThreadPoolExecutor(1) as threads:
        lines = stream.iter_lines()
        seen = [next(lines)]
        os.kill(pid, signal.SIGSTOP)
        assert replica(stream) == replica(expected)
        waits = threads.submit(replicas.post, whole)
        time.sleep(1)
        assert not waits.done()
        os.kill(pid, signal.SIGKILL)
        seen += lines
        answered = waits.result()
    *pieces, last = events(seen)
    assert pieces and last["error"]["code"] == "replica_died" and "data: [DONE]" not in seen
    assert answered.status_code == 200 and replica(answered) != replica(expected)
    assert without_ids(answered) == without_ids(expected)


def test_a_command_for_replicas_needs_no_torch():
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    imports = "import sys, tilepress.cluster.replica, tilepress.cluster.door"
    subprocess.run([sys.executable, "-c", f"{imports}; assert 'torch' not in sys.modules"], check=True)


def test_a_ray_without_what_is_used_of_it(monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tilepress[ray]'")
    from tilepress.cluster.ports import listen_at_node
    from tilepress.cluster.replicas import _check_address

    said = r"does not know this version of Ray \(.+\): pip install 'ray\[serve\]=="
    monkeypatch.delattr("ray.serve.context._get_global_client")
    with pytest.raises(ClusterError, match=said):
        _check_address("127.0.0.1", 8000)
    monkeypatch.delattr("ray.serve._private.replica.add_port_to_grpc_server")
    with pytest.raises(RuntimeError, match=said):
        listen_at_node()
