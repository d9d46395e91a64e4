"""What `tilepress bench attention` measures, on caches small enough for tests."""

import json

import pytest
import torch
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
    settings = Settings(["bfp4", "bfp8"], [64, 300], torch.float32, repeats=2, threads=1)
    results = list(measure(Heads(4, 2, 32), settings))
    assert [result.depth for result in results] == [64, 300]
    for result in results:
        assert [timing.name for timing in result.timings] == ["bfp4", "bfp8", "torch SDPA float32"]
        assert all(timing.seconds > 0 and timing.rate > 0 for timing in result.timings)
        assert set(result.over(result.timings[0])) == {"torch SDPA float32"}
    assert results[1].timings[2].nbytes == 2 * 4 * 2 * 32 * 301
    assert results[1].timings[0].nbytes < results[1].timings[1].nbytes < results[1].timings[2].nbytes


def test_only_block_floating_point_is_packed():
    with pytest.raises(ValueError, match="packed attention is over block floating point, not fp16"):
        next(measure(Heads(1, 1, 32), Settings(["fp16"], [8])))


def test_the_command_prints_records_and_a_table():
    command = ["bench", "attention", "4/2x32", "--depth", "64", "--kv", "bfp4", "--threads", "1", "--repeats", "1"]
    records = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    found = {record["name"]: record for record in records}
    assert found["bfp4.4/2x32.depth_64.time"]["unit"] == "s"
    assert any(name.startswith("bfp4.4/2x32.depth_64.over.torch SDPA") for name in found)
    assert "% of read" in CliRunner().invoke(app, [*command, "--no-peers"]).stdout
    assert CliRunner().invoke(app, ["bench", "attention", "4/3x32"]).exit_code != 0
