"""Contestants and shapes as texts, and the race itself; what it says about speed is nobody's to assert."""

import itertools
import math

import pytest
import torch
from tests.figures import Figures
from typer.testing import CliRunner

from tilepress import kernels
from tilepress.bench import linear, peers
from tilepress.bench.linear import Contestant, Settings, call_times, measure, parse_contestant, pays_from, steps, sweep
from tilepress.bench.shapes import MODELS, Shape, parse_shapes
from tilepress.cli.app import app
from tilepress.formats import parse_weight
from tilepress.tiles import unpack

QUICK = Settings(batches=(1, 3), repeats=1)


def test_a_call_with_hardly_any_weights():
    contestants = [parse_contestant(text) for text in ("int4:g32+int8", "int8:row@50%+int8", "bf16")]
    times = call_times(Shape(4096, 256), contestants, QUICK)
    assert set(times) == {(one, batch) for one in contestants for batch in QUICK.batches}
    assert all(seconds > 0 for seconds in times.values())


@pytest.mark.parametrize(
    ("text", "format", "density", "activations"),
    [
        ("int4:g32", "int4:g32", 1.0, "float"),
        ("int4:g32+float", "int4:g32", 1.0, "float"),
        ("int4:g32+int8", "int4:g32", 1.0, "int8"),
        ("int8:row@50%+int8", "int8:row", 0.5, "int8"),
        ("bf16@12.5%", "bf16", 0.125, "float"),
        ("mxfp4@100%", "mxfp4", 1.0, "float"),
        ("int4:g32+bfp:g32:m8", "int4:g32", 1.0, "bfp:g32:m8"),
        (" INT4:g32:bf16@30%+bfp:m7:g32", "int4:g32", 0.3, "bfp:g32:m7"),
    ],
)
def test_contestants(text, format, density, activations):
    assert parse_contestant(text) == Contestant(parse_weight(format), density, activations)


@pytest.mark.parametrize(
    "text", ["int4:g32", "int4:g32+int8", "int8:row@50%+int8", "bf16@12.5%", "int4:g32+bfp:g32:m8"]
)
def test_contestants_are_written_as_they_are_read(text):
    assert str(parse_contestant(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int44:g32", "did you mean 'int4:g32'"),
        ("int4:g32@50", "a density is written 50%, say, above 0% and up to 100%, not '50'"),
        ("int4:g32@0%", "above 0% and up to 100%, not '0%'"),
        ("int4:g32@101%", "above 0% and up to 100%, not '101%'"),
        ("int4:g32@", "above 0% and up to 100%, not ''"),
        ("int4:g32+int7", "activations are float, bf16, int8 or bfp:gN:mN, not 'int7'"),
        ("int4:g32+", "activations are float, bf16, int8 or bfp:gN:mN, not ''"),
        ("int4:g32+int8@50%", "activations are float, bf16, int8 or bfp:gN:mN, not 'int8@50%'"),
        ("int4:g32+fp16", "activations are float, bf16, int8 or bfp:gN:mN, not 'fp16'"),
        ("int4:g32+bfp:g32", "block floating point is written bfp:gN:mN"),
        ("mxfp4+int8", "int8 activations need integer weights, not mxfp4"),
        ("bf16@50%+bfp:g32:m7", "bfp:g32:m7 activations need integer weights, not bf16"),
        ("bfp:g32:m8", "is a format of activations"),
        ("", "unknown format ''"),
    ],
)
def test_bad_contestants_are_refused_with_the_form(text, message):
    with pytest.raises(ValueError) as error:
        parse_contestant(text)
    assert message in str(error.value) and (not text or str(error.value).count(repr(text)) <= 1)
    assert str(error.value).endswith("a contestant is FORMAT[@DENSITY%][+ACTIVATIONS], int4:g32@50%+int8 say")


def test_shapes():
    assert parse_shapes(["4096x14336", "64×32"]) == [Shape(4096, 14336), Shape(64, 32)]
    llama = parse_shapes(["llama3-8b"])
    assert [str(shape) for shape in llama] == ["4096x4096", "1024x4096", "14336x4096", "4096x14336"]
    assert llama[1].title == "1024x4096 (llama3-8b k_proj, llama3-8b v_proj)"
    assert [str(shape) for shape in parse_shapes(["llama2-70b-fc"])] == ["28672x8192"]
    small = [str(shape) for shape in parse_shapes(["SmolLM2"])]
    assert small == ["576x576", "192x576", "1536x576", "576x1536", "49152x576"]


def test_a_shape_is_measured_once_however_often_it_is_named():
    first, *rest = parse_shapes(["llama3-8b", "4096x4096", "llama3-8b"])
    assert first.layers == ("llama3-8b q_proj", "llama3-8b o_proj") and len(rest) == 3


@pytest.mark.parametrize("text", ["", "64", "64x", "64x64x64", "0x64", "-1x64", "64x64.0", "llama9", "99999999x1"])
def test_bad_shapes_are_refused(text):
    with pytest.raises(ValueError) as error:
        parse_shapes([text])
    names = ", ".join(MODELS)
    assert str(error.value) == f"{text!r} is no shape; write NEURONSxINPUTS, 4096x4096 say, or one of {names}"


def test_a_sweep_goes_through_the_densities():
    names = [str(contestant) for contestant in sweep(parse_contestant("int4:g32+int8"))]
    assert names == ["int4:g32+int8", *(f"int4:g32@{percent}%+int8" for percent in (50, 30, 20, 10))]
    with pytest.raises(ValueError, match="a sweep sets the densities itself; leave 50% off int8:row@50%"):
        sweep(parse_contestant("int8:row@50%"))


def test_peers_by_name():
    contestants, settings = [parse_contestant("bf16")], Settings(repeats=1, among=["torch float32"])
    seen = []
    (result,) = measure(Shape(32, 64), contestants, settings, seen.append)
    assert [timing.name for timing in result.timings] == ["bf16", "torch float32"] and not result.refused
    assert len(seen) == linear.steps(contestants, settings) == 3


@pytest.mark.parametrize(
    ("seconds", "density"),
    [
        ({1.0: 4, 0.5: 3, 0.3: 2, 0.1: 1}, 0.5),
        ({1.0: 4, 0.5: 5, 0.3: 2, 0.1: 1}, 0.3),
        ({1.0: 4, 0.5: 3, 0.3: 5, 0.1: 1}, 0.1),  # 50 % was luck
        ({1.0: 4, 0.5: 7, 0.3: 6, 0.1: 4}, None),
    ],
)
def test_where_sparse_starts_to_win(seconds, density):
    assert pays_from(seconds) == density


@pytest.fixture
def fake_kernels(monkeypatch):
    """The kernels' interface without the kernels; it remembers what it was asked for."""
    asked = []

    def fake_linear(x, packed, bias=None, *, activations="float", threads=None):
        asked.append((id(packed), packed, activations, threads, x.dtype))
        return x.float() @ unpack(packed).T

    monkeypatch.setattr(kernels, "linear", fake_linear)
    monkeypatch.setattr(kernels, "linear_kernel", lambda packed, batch, dtype, activations: f"fake/{batch}")
    return asked


def test_a_race(fake_kernels):
    contestants = [parse_contestant(text) for text in ("int4:g32", "int4:g32+int8", "int8:row@50%+int8")]
    heard = []
    results = list(measure(Shape(64, 64), contestants, QUICK, heard.append))
    assert len(heard) == steps(contestants, QUICK)
    assert [(result.batch, result.timings[0].kernel) for result in results] == [(1, "fake/1"), (3, "fake/3")]
    for result in results:
        names = [timing.name for timing in result.timings]
        assert names[:4] == ["int4:g32", "int4:g32+int8", "int8:row@50%+int8", "torch float32"]
        assert {*names[3:], *result.refused} == {peer.name for peer in peers.PEERS}
        assert all(timing.seconds > 0 and timing.share_of_bandwidth > 0 for timing in result.timings)
        assert all(timing.over_read > 0 for timing in result.timings[:3])
        assert all(timing.over_read is None for timing in result.timings[3:])
        assert result.over(result.timings[0]).keys() == set(names[3:])


def test_contestants_of_the_same_weights_share_the_copies_in_turn(fake_kernels, monkeypatch):
    monkeypatch.setattr(linear, "copies_of", lambda size, allowance: 3)
    contestants = [parse_contestant(text) for text in ("int4:g32", "int4:g32+int8")]
    settings = Settings(repeats=4, peers=False, threads=1, dtype=torch.bfloat16)
    list(measure(Shape(32, 64), contestants, settings))
    used = [address for address, *_ in fake_kernels]
    assert len(set(used)) == 3
    assert all(one != other for one, other in itertools.pairwise(used))
    assert {(acts, threads, dtype) for _, _, acts, threads, dtype in fake_kernels} == {
        ("float", 1, torch.bfloat16),
        ("int8", 1, torch.bfloat16),
    }


def test_weights_have_their_density(fake_kernels):
    list(measure(Shape(256, 256), [parse_contestant("int8:row@30%")], Settings(repeats=1, peers=False)))
    assert fake_kernels[0][1].density == pytest.approx(0.3, abs=0.01)


def test_torch_has_the_threads_meanwhile(fake_kernels):
    before = torch.get_num_threads()
    race = measure(Shape(32, 64), [parse_contestant("int4:g32")], Settings(repeats=1, peers=False, threads=1))
    next(race)
    assert torch.get_num_threads() == 1
    race.close()
    assert torch.get_num_threads() == before


def test_copies_fill_the_cache_four_times_as_memory_allows(monkeypatch):
    monkeypatch.setattr(peers, "last_level_cache_bytes", lambda: 1000)
    assert peers.copies_of(size=300, allowance=1 << 40) == 14
    assert peers.copies_of(size=300, allowance=1000) == 3
    assert peers.copies_of(size=5000, allowance=1000) == 2
    assert peers.copies_of(size=1, allowance=1 << 40) == peers.MOST_COPIES


def records(*arguments):
    done = CliRunner().invoke(app, ["bench", "linear", *map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return Figures(done.stdout)


def test_records(fake_kernels):
    figure = records("int4:g32+int8", "--shape", "64x64", "--repeats", 1, "--batch", 1, "--batch", 2)
    ours = {"format": "int4:g32", "density": 1, "activations": "int8", "shape": "64x64", "batch": 2}
    for metric in ("time", "rate", "share_of_read_bandwidth"):
        assert figure(metric, **ours) > 0
    assert all(figure("speedup", **ours, peer=peer) > 0 for peer in ("plain read", "torch float32"))
    assert figure("kernel", **ours) == "fake/2"
    assert figure("kernel", library="torch float32", batch=1) == "F.linear"
    assert not figure.has("speedup", library="torch float32")
    for peer in peers.PEERS:
        refused = peer.refusal(Shape(64, 64))
        assert figure.all("peer_refused", peer=peer.name) == ([] if refused is None else [refused])
        assert figure.has("time", library=peer.name, shape="64x64", batch=1) == (refused is None)


def test_records_of_a_sweep(fake_kernels):
    figure = records("int8:row+int8", "--shape", "64x64", "--repeats", 1, "--sweep")
    int8 = {"format": "int8:row", "activations": "int8", "shape": "64x64", "batch": 1}
    assert figure("speedup", **int8, density=1, peer="dense") == 1
    assert figure("speedup", **int8, density=0.1, peer="dense") > 0
    assert figure("sparse_wins_from_density", **int8) in ("never", 0.5, 0.3, 0.2, 0.1)
    assert not figure.has("peer_refused") and not any("library" in one.labels for one in figure.records)


def test_tables(fake_kernels):
    small = ["bench", "linear", "int4:g32", "--shape", "64x64", "--repeats", "1"]
    table = CliRunner().invoke(app, small, catch_exceptions=False).stdout
    assert "× torch float32" in table and "× plain read" in table and "read bandwidth, GB/s:" in table
    table = CliRunner().invoke(app, [*small, "--no-peers"], catch_exceptions=False).stdout
    assert "torch" not in table and "× plain read" in table
    table = CliRunner().invoke(app, [*small, "--sweep"], catch_exceptions=False).stdout
    assert "× dense" in table and "sparse beats dense:" in table


def test_mantissas_of_all_lengths_are_timed():
    result = next(measure(Shape(32, 64), [parse_contestant("int4:g32+bfp:g32:m16")], QUICK))
    assert result.timings[0].kernel.startswith("linear_f32_i8_int/") and result.timings[0].seconds > 0
    with pytest.raises(ValueError, match="mantissa must be an int from 1 to 16, got 17"):
        parse_contestant("int4:g32+bfp:g32:m17")


def test_the_kernels_themselves():
    """One race without a fake, once with each kind of activations."""
    texts = ("int4:g32", "int4:g32+int8", "int4:g32+bfp:g32:m8", "bf16@50%", "mxfp4")
    (result,) = measure(Shape(48, 64), [parse_contestant(text) for text in texts], Settings(repeats=1, peers=False))
    assert [timing.name for timing in result.timings] == list(texts)
    assert all("/" in timing.kernel and math.isfinite(timing.seconds) for timing in result.timings)
