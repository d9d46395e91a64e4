"""A model compressed over workers has the bytes that one process gives it, whatever dies meanwhile."""

import os
import signal

import pytest
import torch

from tests.cluster.hosted_crew import HostedExecutor
from tests.models import mixtures, tiny
from tilepress.cluster import ClusterError, InProcess, LocalExecutor, compress_over, host, member
from tilepress.cluster.local_crew import LocalCrew
from tilepress.cluster.team import owners, shares
from tilepress.compression import InputStatistics
from tilepress.compression.threads import PANEL, panels
from tilepress.models import compress_to_folder
from tilepress.models.calibration import CalibrationError

INT4 = {"format": "int4:g32"}
KINDS = {
    "nearest": {"weights": INT4},
    "wanda": {"weights": {**INT4, "density": 0.5, "prune": "wanda", "lm_head": "compress"}},
    "gptq": {"weights": {**INT4, "quantize": "gptq"}, "activations": {"format": "int8"}},
    "sparsegpt": {"weights": {**INT4, "density": 0.5, "prune": "sparsegpt"}},
    "target dense": {"weights": {**INT4, "quantize": "gptq", "target": "dense"}},
    "reconstruct": {"weights": {**INT4, "quantize": "gptq", "reconstruct": 2}},
    "smoothing": {"weights": {**INT4, "quantize": "gptq"}, "kv_cache": {"format": "bfp4", "smoothing": "offline"}},
    "heal": {"weights": {**INT4, "density": 0.5, "prune": "wanda", "heal": 1}},
}


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory):
    """A model with layers of more than one panel of inputs, and heads that smoothing takes: (folder, text)."""
    changes = {"intermediate_size": 600, "num_hidden_layers": 2, "num_attention_heads": 2}
    return tiny.save(tmp_path_factory.mktemp("wide") / "model", **changes)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def calibrated(recipe, text, sequences=5):
    return {**recipe, "calibration": {"text": str(text), "sequences": sequences, "length": 16}}


def compressed(executor, folder, out, recipe, **options):
    compress_over(executor, str(folder), out, recipe, announce=lambda _: None, **options)
    return contents(out)


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_gives_the_bytes_of_one_process(kind, wide_folder, tmp_path):
    folder, text = wide_folder
    recipe = calibrated(KINDS[kind], text)
    alone = compressed(InProcess(), folder, tmp_path / "alone", recipe)
    for workers, threads in ((1, 1), (2, 1), (3, 2)) if kind == "gptq" else ((3, 1),):
        executor = HostedExecutor(workers, threads)
        assert compressed(executor, folder, tmp_path / f"{workers}", recipe) == alone
        assert executor.crews == (0 if kind == "reconstruct" else 1)


@pytest.mark.parametrize(
    ("family", "kind"),
    [("opt", "gptq"), ("gemma3", "gptq"), ("gpt_oss", "gptq"), ("qwen3_moe", "target dense"), ("qwen3_moe", "wanda")],
)
def test_models_of_other_kinds(family, kind, tmp_path):
    """Mixtures of experts among them, of which some are seen by some workers alone."""
    folder, text = tiny.save(tmp_path / "model")
    make = tiny.make if family in tiny.FAMILIES else mixtures.make
    make(family).save_pretrained(folder)
    recipe = calibrated({"weights": KINDS[kind]["weights"]}, text, sequences=4)
    alone = compressed(InProcess(), folder, tmp_path / "alone", recipe)
    assert compressed(HostedExecutor(9), folder, tmp_path / "four", recipe) == alone


def test_a_worker_may_die_at_any_call(wide_folder, tmp_path):
    folder, text = wide_folder
    recipe = calibrated(KINDS["target dense"], text, sequences=2)
    alone, whole = compressed(InProcess(), folder, tmp_path / "alone", recipe), HostedExecutor(2)
    assert compressed(whole, folder, tmp_path / "whole", recipe) == alone
    for call in (1, 3, 20, len(whole.calls) // 2, len(whole.calls)):
        executor = HostedExecutor(2, dies=(call,))
        assert compressed(executor, folder, tmp_path / f"{call}", recipe) == alone
        assert executor.crews == 2


def test_a_block_that_ends_every_crew_is_given_up_and_the_command_goes_on(wide_folder, tmp_path):
    folder, text = wide_folder
    recipe, out = calibrated(KINDS["gptq"], text, sequences=3), tmp_path / "out"
    with pytest.raises(ClusterError, match=r"layers\.0 is given up after 3 attempts: a worker process was killed$"):
        compressed(HostedExecutor(2, dies=range(3, 999)), folder, out, recipe)
    assert not out.exists()

    class Stop(Exception):
        pass

    def interrupt(state):
        if state.done == 1:
            raise Stop

    with pytest.raises(Stop):
        compressed(HostedExecutor(3), folder, out, recipe, progress=interrupt)
    assert os.listdir(tmp_path / "out.partial/finished") == ["1.json"]
    alone = compressed(InProcess(), folder, tmp_path / "alone", recipe)
    assert compressed(HostedExecutor(2), folder, out, recipe) == alone


def test_another_version_or_model_is_refused(wide_folder, tmp_path, monkeypatch):
    folder, text = wide_folder
    recipe, out = calibrated(KINDS["gptq"], text), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(member, "contents_of", lambda shards: [])
        with pytest.raises(ClusterError, match=r": .*model is another model there: all machines need the same files$"):
            compressed(HostedExecutor(2), folder, out, recipe)
    with monkeypatch.context() as patch:
        patch.setattr(host, "versions", lambda: {"tilepress": "0.0.1"})
        with pytest.raises(ClusterError, match=r"has tilepress 0\.0\.1, and the command was started with .*: install"):
            compressed(HostedExecutor(2), folder, out, recipe)
    monkeypatch.setattr(compress_to_folder, "find_device", torch.device)
    with pytest.raises(ValueError, match="workers compute on CPUs, and the device is cuda: leave one of both out"):
        compressed(HostedExecutor(2), folder, out, recipe, device="cuda")
    assert not out.exists()


def test_an_error_of_a_worker_is_that_of_one_process(wide_folder, tmp_path, monkeypatch):
    folder, text = wide_folder
    recipe = calibrated(KINDS["gptq"], text)
    monkeypatch.setattr(InputStatistics, "add", refuse)
    for executor in (InProcess(), HostedExecutor(2)):
        with pytest.raises(CalibrationError, match=r"^model\.layers\.0\.self_attn\.q_proj: inputs must be finite$"):
            compressed(executor, folder, tmp_path / "out", recipe)


def refuse(*_):
    raise ValueError("inputs must be finite")


def test_shares_and_owners():
    assert shares(5, 2) == [slice(0, 2), slice(2, 5)] and shares(0, 2) == [slice(0, 0)] * 2
    assert owners({"a": (1, 1), "b": (1, 4), "c": (2, 2)}, 2) == {"b": 0, "c": 1, "a": 1}


@pytest.mark.parametrize("drift", [False, True])
def test_pieces_are_the_statistics_together(drift):
    x, dense = torch.randn(2, 3, 7, 600, generator=torch.Generator().manual_seed(0))
    whole = InputStatistics(600, drift=drift)
    pieces = [InputStatistics(600, drift=drift, rows=rows) for rows in panels(600, 2 * PANEL)]
    for one in (whole, *pieces):
        for inputs, ideal in zip(x, dense, strict=True):
            one.add(inputs, ideal if drift else None)
    joined = InputStatistics.joined(pieces)
    assert torch.equal(joined.hessian, whole.hessian) and torch.equal(joined.norms, whole.norms)
    assert joined.count == whole.count
    assert torch.equal(joined.drift, whole.drift) if drift else joined.drift is None


def test_processes_give_the_same_and_one_may_be_killed(wide_folder, tmp_path, monkeypatch):
    folder, text = wide_folder
    recipe, killed = calibrated(KINDS["sparsegpt"], text), []
    call, executor = LocalCrew.call, LocalExecutor(2, 1)

    def call_and_kill(crew, worker, method, *arguments):
        if method == "compress" and not killed:
            killed.append(crew.pids[1])
            os.kill(crew.pids[1], signal.SIGKILL)
            executor.workers = 1  # of the next crew
        return call(crew, worker, method, *arguments)

    monkeypatch.setattr(LocalCrew, "call", call_and_kill)
    over = compressed(executor, folder, tmp_path / "two", recipe)
    assert killed and over == compressed(InProcess(), folder, tmp_path / "alone", recipe)
