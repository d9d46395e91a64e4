"""`tilepress bench threads --company`, as a user types it, on a tiny compressed model."""

import pytest
from tests.cli.test_cli import assert_refused
from tests.models import tiny

from tilepress.models import compress_folder


def test_a_model_and_its_peers_beside_company(tmp_path, call, call_for_records):
    dense, _ = tiny.save(tmp_path / "dense")
    packed = str(tmp_path / "packed")
    compress_folder(str(dense), tmp_path / "packed", {"activations": {"format": "int8"}})
    command = ("bench", "threads", "--company", 1, "--model", packed, "--prompt", 8, "--tokens", 3, "--rounds", 1)
    figure = call_for_records(*command)
    ours = {"model": packed}
    theirs = next(one.labels for one in figure.records if one.labels.get("library", "").startswith("transformers"))
    for labels in (ours, {"library": theirs["library"]}):
        for metric in ("prefill", "decode"):
            alone, beside = (figure(metric, **labels, company=count) for count in (0, 1))
            assert figure(f"{metric}_share_of_idle", **labels, company=1) == pytest.approx(beside / alone)
    assert figure("peer_refused", peer="llama.cpp Q4_0").startswith("llama.cpp reads GGUF files")
    printed = call(*command).stdout
    assert "beside 1 busy processes" in printed and "% of idle" in printed


def test_a_model_must_be_named(call):
    assert_refused(call("bench", "threads", "--company", 1), "name the folder of a compressed one with --model")
