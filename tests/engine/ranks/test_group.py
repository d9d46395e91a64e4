"""Ranks as processes, under the engine. Starting them takes seconds: few groups serve all tests."""

import gc
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from tests.engine.families import make, tokens
from tests.engine.ranks.threads import Threads

from tilepress.engine import Engine, Sampling
from tilepress.engine.batch import Chunk
from tilepress.engine.native import NativeModel
from tilepress.engine.ranks import processes
from tilepress.models import compress_model

COUNT = 24
PROMPTS = [tokens(40), tokens(70, seed=2), tokens(40) + tokens(9, seed=3), tokens(5, seed=4)]


@pytest.fixture(scope="module")
def model():
    return compress_model(make("llama", max_position_embeddings=256), {"weights": {"format": "int4:g32"}})


@pytest.fixture(scope="module")
def engines(model):
    """One, of which the middle rank has no heads; the last test takes it out."""
    return [Engine(model, "bfp8", ranks=3, threads=6, lookup=2)]


@pytest.fixture
def engine(engines):
    return engines[0]


def texts(engine):
    """Of several prompts at once, some of which share pages, with several answers."""
    streams = [engine.submit(prompt, Sampling(max_tokens=COUNT, n=2, seed=5, temperature=0.5)) for prompt in PROMPTS]
    engine.run()
    return [answer.tokens for stream in streams for answer in stream.answers]


def children(engine):
    """Ids of the processes of ranks from 1 on."""
    group = engine.runner._processes._process.pid
    return sorted(map(int, Path(f"/proc/{group}/task/{group}/children").read_text().split()))


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_texts_of_one_process(model, engine):
    assert engine.runner.fixed_pages and engine.runner.threads == 2
    one = Engine(model, "bfp8")
    assert texts(engine) == texts(one)
    before = engine.stats.prefix_tokens
    assert texts(engine) == texts(one)
    assert engine.stats.prefix_tokens > before and engine.stats.guessed_tokens > 0
    assert engine.pool.pages == one.pool.pages and engine.runner.page_bytes == one.runner.page_bytes


def test_bad_chunks_change_nothing(engine):
    text = tokens(12)
    for bad, message in [
        (Chunk(text, 0, (0,), 13), "logits are of none"),
        (Chunk((4096,), 0, (0,), 1), "tokens are 0"),
        (Chunk(text, 32, (5, 6), 1), "do not hold 32 tokens"),
    ]:
        with pytest.raises(ValueError, match=message):
            engine.runner.run([bad])
    with pytest.raises(ValueError, match="pages are 0"):
        engine.runner.copy_page(0, -1)
    assert engine.runner.run([Chunk(text, 0, (0,), 1)]).isfinite().all()
    engine.runner.release([0])


def test_what_one_process_alone_can_do(model, engine, tmp_path):
    with pytest.raises(ValueError, match="only engines with a packed cache and a prefix cache, in one process"):
        engine.save_prefix(tokens(40), tmp_path / "prefix")
    with pytest.raises(ValueError, match="ranks are of a model, and a runner is what it is"):
        Engine(NativeModel(model), ranks=2)


@pytest.mark.parametrize("ranks, message", [(0, "there are 1 or more ranks, not 0"), (7, "in 6 ranks at most")])
def test_numbers_of_ranks_that_cannot_be(model, ranks, message):
    with pytest.raises(ValueError, match=message):
        Engine(model, ranks=ranks)


def test_processes_end_with_their_engine(engines):
    engine = engines.pop()
    ranks = children(engine)
    assert len(ranks) == 2
    del engine
    gc.collect()
    wait_for(lambda: all(map(has_ended, ranks)))


def test_six_ranks_of_which_one_is_killed(model):
    """The same bits as threads give; then every step is an error, at once, and no process is left."""
    own = os.sched_getaffinity(0)
    engine = Engine(model, "float32", ranks=6)
    step = [Chunk(tokens(40), 0, (1, 0), 40)]
    assert torch.equal(engine.runner.run(step), Threads(model, 6).run(step))
    pids = children(engine)
    assert len(pids) == 5
    stream = engine.submit(tokens(30), Sampling(max_tokens=200, ignore_eos=True))
    for _ in range(3):
        engine.step()
    os.kill(pids[3], signal.SIGKILL)
    engine.run()
    assert "rank 4 has" in stream.answers[0].error
    later = engine.submit(tokens(5))
    engine.run()
    assert "open the engine again" in later.answers[0].error
    wait_for(lambda: all(map(has_ended, pids)))
    engine.close()
    assert os.sched_getaffinity(0) == own


def test_a_rank_that_hangs_is_named_and_leaves_nothing(model, monkeypatch):
    monkeypatch.setattr(processes, "SILENCE", 0.5)
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    engine = Engine(model, "float32", ranks=2)
    [rank] = children(engine)
    os.kill(rank, signal.SIGSTOP)
    stream = engine.submit(tokens(5))
    engine.run()
    assert "rank 1 does not answer: it hangs" in stream.answers[0].error
    engine.close()
    wait_for(lambda: has_ended(rank))
