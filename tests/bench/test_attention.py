"""What `tilepress bench attention` measures, on caches small enough for tests."""

import pytest
import torch
from tests.figures import Figures
from typer.testing import CliRunner

from tilepress.bench.attention import Heads, Settings, measure, parse_heads
from tilepress.cli.app import app


def test_heads_have_names_and_shapes():
    assert parse_heads("llama3-8b") == Heads(32, 8, 128) == parse_heads("32/8x128")
    assert str(parse_heads("smollm2")) == "9/3x64"
    for text, why in [("32/8", "is neither one of"), ("0/1x32", "is neither one of"), ("3/2x32", "do not divide")]:
        with pytest.raises(ValueError, match=why):
            parse_heads(text)


def test_every_entrant_is_timed_at_every_depth():
    names = ["bfp4", "bfp8", "sparse:k30,v50", "bfp8+sparse:k50,v70"]
    settings = Settings(names, [64, 300], [torch.float32, torch.bfloat16], repeats=2, threads=1)
    results = list(measure(Heads(4, 2, 32), settings))
    assert [result.depth for result in results] == [64, 300]
    peers = ["torch SDPA float32", "torch SDPA bfloat16"]
    for result in results:
        assert [timing.name for timing in result.timings] == [*names, *peers]
        assert all(timing.seconds > 0 and timing.rate > 0 for timing in result.timings)
        assert list(result.over(result.timings[0])) == peers
        assert result.best_peer == min(result.timings[4:], key=lambda peer: peer.seconds)
    sizes = [timing.nbytes for timing in results[1].timings]
    assert sizes[4:] == [2 * 4 * 2 * 32 * 301, 2 * 2 * 2 * 32 * 301]
    assert sizes[0] < sizes[1] < sizes[2] < sizes[5] < sizes[4] and sizes[3] < sizes[1]


def test_prompts_are_timed_and_not_held_against_memory():
    settings = Settings(["bfp4", "sparse:k30,v50"], [96], [torch.float32], repeats=1, threads=1, prompt=True)
    (result,) = measure(Heads(4, 2, 32), settings)
    assert [timing.name for timing in result.timings] == ["bfp4", "sparse:k30,v50", "torch SDPA float32"]
    assert all(timing.seconds > 0 and not timing.share_of_bandwidth for timing in result.timings)
    assert result.timings[0].nbytes < result.timings[2].nbytes == 2 * 4 * 2 * 32 * 96


def test_the_command_times_prompts():
    command = ["bench", "attention", "4/2x32", "--kv", "bfp4", "--threads", "1", "--repeats", "1", "--depth", "64"]
    figure = Figures(CliRunner().invoke(app, [*command, "--prompt", "--json"]).stdout)
    bfp4 = {"kv": "bfp4", "heads": "4/2x32", "prompt": 64}
    assert figure("time", **bfp4) > 0 and figure("speedup", **bfp4, peer="torch SDPA float32") > 0
    assert not any("bandwidth" in one.metric or "depth" in one.labels for one in figure.records)
    table = CliRunner().invoke(app, [*command, "--prompt"]).stdout
    assert "A prompt's attention" in table and "% of read" not in table and "(best)" in table


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fp16", "small caches are block floating point or sparse halves, not fp16"),
        ("sparse:30", "is no cache format"),
    ],
)
def test_other_caches_are_not_measured(name, why):
    with pytest.raises(ValueError, match=why):
        next(measure(Heads(1, 1, 32), Settings([name], [8])))


def test_the_command_prints_records_and_a_table():
    command = ["bench", "attention", "4/2x32", "--kv", "bfp4", "--kv", "sparse:k30,v50", "--threads", "1"]
    command += ["--repeats", "1", "--depth", "64"]
    figure = Figures(CliRunner().invoke(app, [*command[:-1], "64,96", "--json"]).stdout)
    for kv in ("bfp4", "sparse:k30,v50"):
        assert all(figure("time", kv=kv, heads="4/2x32", depth=depth) > 0 for depth in (64, 96))
        assert figure.has("speedup", kv=kv, depth=64, peer="torch SDPA float32")
    assert {one.unit for one in figure.records if one.metric == "time"} == {"s"}
    assert figure.has("time", library=figure("best_peer", depth=96), depth=96)
    assert figure.has("time", library="torch SDPA bfloat16") != figure.has("peer_refused", peer="torch SDPA bfloat16")
    assert "(best)" in CliRunner().invoke(app, command).stdout
    assert "% of read" in CliRunner().invoke(app, [*command, "--no-peers"]).stdout
    assert CliRunner().invoke(app, ["bench", "attention", "4/3x32"]).exit_code != 0
    wrong = CliRunner().invoke(app, ["bench", "attention", "4/2x32", "--depth", "64,x"])
    assert wrong.exit_code != 0 and "not 'x'" in str(wrong.exception)
