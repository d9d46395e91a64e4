"""`tilepress inspect` of folders and GGUF files, and figures that are kept on a compressed folder's card."""

import json
import shutil

import pytest
from tests.cli.test_cli import assert_refused
from tests.figures import Figures
from tests.models import tiny
from tests.models.gguf_files import write_gguf

from tilepress.models import compress_folder
from tilepress.models.kept_records import read_records
from tilepress.models.named import NAMED

RECIPE = {"weights": {"format": "int4:g32", "density": 0.5}, "kv_cache": {"format": "bfp8"}}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """(compressed, dense, text)."""
    dense, text = tiny.save(tmp_path_factory.mktemp("inspect") / "dense", head_dim=32)
    compress_folder(str(dense), dense.parent / "small", RECIPE)
    return dense.parent / "small", dense, text


@pytest.fixture
def small(pristine, tmp_path):
    return shutil.copytree(pristine[0], tmp_path / "small")


def test_a_compressed_folder(small, pristine, call, call_for_records):
    figure = call_for_records("inspect", small)
    layer = "model.layers.0.mlp.up_proj"
    assert figure("format", layer=layer) == "int4:g32" and figure("density", layer=layer) == 0.5
    assert (figure("rows", layer=layer), figure("cols", layer=layer)) == (128, 64)
    assert 2.5 < figure("bits_per_weight", layer=layer) < 5 and figure("sums_hold") is True
    assert sum(figure.all("size", layer=layer)) < figure("size") == (small / "model.safetensors").stat().st_size
    assert figure("fact", subject="made from") == str(pristine[1])
    assert "format bfp8" in figure("fact", subject="recipe, kv cache")
    assert (
        figure("fact", subject="embedding and output layer") == "model.embed_tokens in int8:row, once for lm_head too"
    )
    printed = call("inspect", small).stdout
    assert "model.layers.*.mlp.up_proj" in printed and "SHA256SUMS" in printed and "holds" in printed


def test_a_damaged_folder_is_shown_and_refused(small, pristine, call):
    (small / "tokenizer.json").write_text("{}")
    done = call("inspect", small, "--json")
    assert done.returncode == 1 and Figures(done.stdout)("sums_hold") is False
    assert "tokenizer.json is damaged" in done.stderr and "Traceback" not in done.stderr
    assert "does not hold" in call("inspect", small).stdout
    (small / "config.json").write_text('{"quantization_config": {"quant_method": "tilepress", "layers": 3}}')
    assert_refused(call("inspect", small), "config.json and its weights disagree")
    config = json.loads((pristine[0] / "config.json").read_text())
    config |= {"architectures": 5}
    config["quantization_config"] |= {"source": "[/red]\x1b[31m", "versions": [], "recipe": 3, "calibration": "x"}
    (small / "config.json").write_text(json.dumps(config))
    done = call("inspect", small)
    assert "[/red]�[31m" in done.stdout and "config.json is damaged" in done.stderr
    (small / "config.json").write_text("[" * 100_000)
    assert_refused(call("inspect", small), "config.json cannot be read")


def test_a_dense_folder_and_a_gguf_file(pristine, tmp_path, call, call_for_records):
    figure = call_for_records("inspect", pristine[1])
    assert figure("compress_would", tensor="model.layers.2.mlp.down_proj.weight") == "packed"
    assert figure("shape", tensor="model.embed_tokens.weight") == "96×64" and figure("type", tensor="model.norm.weight")
    assert figure("size_after_compress") < figure("size") / 4
    write_gguf(tmp_path / "m.gguf")
    figure = call_for_records("inspect", tmp_path / "m.gguf")
    assert figure("fact", subject="architecture") == "llama" and figure("size", tensor="blk.0.attn_q.weight") == 4096
    assert "blk.*.attn_q.weight" in call("inspect", tmp_path / "m.gguf").stdout
    (tmp_path / "empty").mkdir()
    assert_refused(call("inspect", tmp_path / "empty"), "is a folder without a config.json, so it holds no model")


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (0, "it ends before its metadata does"),
        (4, "it ends before its metadata does"),
        (30, "it ends before its metadata does"),
        (0.5, "it ends before its last tensor does"),
        (-1, "it ends before its last tensor does"),
        (b"no such thing", "it does not begin like one"),
    ],
)
def test_a_gguf_file_that_is_cut_short(tmp_path, call, kept, reason):
    write_gguf(path := tmp_path / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(kept if isinstance(kept, bytes) else whole[: int(kept * len(whole)) if kept == 0.5 else kept])
    done = call("inspect", path)
    assert_refused(done, f"{path} is no whole GGUF file: {reason}; fetch it again")
    assert "transformers" not in done.stderr and done.stderr.count("\n") == 1


def test_a_model_that_another_tool_quantised(pristine, tmp_path, call_for_records):
    folder = shutil.copytree(pristine[1], tmp_path / "gptq")
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "gptq"}}
    (folder / "config.json").write_text(json.dumps(config))
    figure = call_for_records("inspect", folder)
    assert figure("quantised_by") == "gptq" and not figure.has("size_after_compress")


def test_quality_and_speed_on_the_card(small, pristine, call):
    done = call("eval", small, "--data", pristine[2], "--window", 16, "--windows", 2, "--write-card", "--json")
    assert done.returncode == 0, done.stderr
    measured = Figures(done.stdout)("perplexity")
    done = call("bench", "model", small, "--no-peers", "--prompt", 8, "--tokens", 3, "--repeats", 2, "--write-card")
    assert done.returncode == 0, done.stderr
    kept = {one.metric: one for one in read_records(small)}
    assert {"perplexity", "decode", "read_bandwidth"} <= kept.keys()
    assert kept["perplexity"].labels["text"] == "text.txt" and str(small.parent) not in kept["perplexity"].command
    card = (small / "README.md").read_text()
    assert f"| perplexity, text text.txt | {measured:.4g} ± " in card and "| decode, depth 8, batch 1 | " in card
    (small / "README.md").write_text("mine")
    done = call("eval", small, "--data", pristine[2], "--window", 16, "--windows", 1, "--write-card")
    assert done.returncode == 0 and "README.md was edited, so the figures are in records.json alone" in done.stderr
    assert (small / "README.md").read_text() == "mine"


def test_only_a_compressed_folder_has_such_a_card(pristine, call):
    for command in (["eval", pristine[1]], ["bench", "model", pristine[1]]):
        assert_refused(
            call(*command, "--write-card"), "--write-card writes to a folder that `tilepress compress` wrote"
        )


def test_a_model_that_has_a_name_here_is_its_file_in_the_cache(call, tmp_path):
    (tmp_path / NAMED["smollm2-135m"].file).write_bytes(b"another")
    refused = call("inspect", "smollm2-135m", TILEPRESS_CACHE=str(tmp_path))
    assert_refused(refused, f"{tmp_path / NAMED['smollm2-135m'].file} is not the file that")
