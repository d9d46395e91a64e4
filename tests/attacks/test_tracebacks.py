"""What goes wrong is one line and an exit code, and what was done before is not lost."""

import json
from dataclasses import asdict

import pytest
import torch
from safetensors import SafetensorError
from tests.attacks.test_model_folders import write_config
from tests.cli.test_cli import assert_refused
from tests.figures import Figures
from tests.models import tiny
from transformers import TextStreamer

import tilepress
from tilepress.engine.packed import PackedModel
from tilepress.models import compress_folder, load_model
from tilepress.models.embedded import ModelUnavailableError
from tilepress.nn import model_kv_cache as kv_caches
from tilepress.tiles import DamagedError, sealed

SIZES = {"hidden_size": 128, "head_dim": 32, "initializer_range": 0.1}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, _ = tiny.save(tmp_path_factory.mktemp("cli") / "model", **SIZES)
    compress_folder(str(folder), folder.parent / "out", {"kv_cache": {"format": "bfp4"}})
    return folder.parent / "out"


def assert_one_line(done, *messages):
    assert done.returncode == 1 and done.stderr.count("tilepress: error: ") == 1
    assert "Traceback" not in done.stderr and done.stderr.endswith("\n")
    line = done.stderr.splitlines()[-1]
    assert line.startswith("tilepress: error: ") and all(message in line for message in messages), done.stderr


# The place of a cache


def test_a_cache_in_a_folder_that_is_not_there(model, call, tmp_path, monkeypatch):
    monkeypatch.setattr("tilepress.models.load_model", lambda *_: pytest.fail("the model was loaded first"))
    done = call("generate", model, "w5", "--cache", tmp_path / "none/talk.safetensors")
    assert_refused(done, f"--cache: there is no folder {tmp_path}/none: make it first")
    assert_refused(call("generate", model, "w5", "--cache", tmp_path), "is a folder: name a file in it")
    done = call("generate", model, "w5", "--cache", "/proc/talk.safetensors")
    assert_refused(done, "--cache: no file can be written to /proc (")


def full_disk(*_):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_text_is_shown_though_its_cache_cannot_be_saved(model, call, tmp_path, monkeypatch):
    path = tmp_path / "talk.safetensors"
    expected = call("generate", model, "w5", "--tokens", 4).stdout
    monkeypatch.setattr(sealed, "save_file", full_disk)
    done = call("generate", model, "w5", "--tokens", 4, "--cache", path)
    assert done.stdout == expected
    assert_one_line(done, f"the cache cannot be written to {path} (", "No space left on device", "make room there")
    done = call("generate", model, "w5", "--tokens", 4, "--cache", path, "--json")
    assert Figures(done.stdout)("text") == expected.strip()
    assert_one_line(done, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_turns_before_one_that_fails_are_shown(model, call):
    done = call("generate", model, "w5", " ".join(["w6"] * 64), "--tokens", 4, "--json")
    assert Figures(done.stdout).has("text", turn=1)
    assert_one_line(done, "give a shorter one")


@pytest.mark.parametrize(
    ("place", "before", "options", "message"),
    [
        (
            (TextStreamer, "put"),
            1 + 6,
            ["--cache", "talk"],
            "not enough memory: take a smaller model",
        ),  # with the prompt
        ((PackedModel, "run"), 6, [], "the step failed: MemoryError"),
    ],
    ids=["transformers", "engine"],
)
def test_words_before_a_failure_are_shown(model, call, monkeypatch, tmp_path, place, before, options, message):
    plain, count = getattr(*place), 0

    def failing(*arguments):
        nonlocal count
        count += 1
        if count > before:
            raise MemoryError
        return plain(*arguments)

    monkeypatch.chdir(tmp_path)
    expected = call("generate", model, "w5", "--tokens", 6).stdout.split()
    monkeypatch.setattr(*place, failing)
    done = call("generate", model, "w5", "--tokens", 20, *options)
    assert done.stdout.split() == expected and done.stdout.endswith("\n")
    assert_one_line(done, message)


# Memory


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (lambda: torch.empty(1 << 50), "not enough memory (4503599.6 GB more were asked for): take a smaller model"),
        (lambda: bytearray(1 << 60), "not enough memory: take a smaller model, or end other programs"),
        (lambda: int("several\nlines"), "invalid literal"),
    ],
)
def test_errors_are_one_line(call, monkeypatch, failure, message):
    monkeypatch.setattr("tilepress.cli.app.run", failure)
    assert_one_line(call("formats"), message)


def test_a_traceback_for_those_who_ask(call, monkeypatch):
    monkeypatch.setattr("tilepress.cli.app.run", lambda: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        call("formats", TILEPRESS_DEBUG="1")


# Files that say what cannot be


def changed(folder, tmp_path, change):
    import shutil

    copy = shutil.copytree(folder, tmp_path / "model")
    stated = json.loads((copy / "config.json").read_text())
    change(stated)
    write_config(copy, json.dumps(stated))
    return copy


def set_streams(name):
    def change(stated):
        layer = next(iter(stated["quantization_config"]["layers"].values()))
        layer["streams"] = dict.fromkeys(layer["streams"], name)

    return change


@pytest.mark.parametrize("name", ["uint77", "load", 3, None])
def test_types_that_do_not_exist(model, tmp_path, call, name):
    folder = changed(model, tmp_path, set_streams(name))
    assert_one_line(call("generate", folder, "w5"), f"in {name!r}, which is no type")


@pytest.mark.parametrize("name", ["float7", "load", 3])
def test_types_of_a_model_that_do_not_exist(model, tmp_path, call, name):
    folder = changed(model, tmp_path, lambda stated: stated.update(dtype=name))
    assert_one_line(call("generate", folder, "w5"), "config.json")


@pytest.mark.parametrize("classes", [3, [["LlamaForCausalLM"]]])
def test_a_model_made_as_nothing(tmp_path, call, classes):
    folder, _ = tiny.save(tmp_path / "model")
    write_config(folder, json.dumps(json.loads((folder / "config.json").read_text()) | {"architectures": classes}))
    assert call("generate", folder, "w5", "--tokens", 2).returncode == 0


def test_a_value_of_another_type(model, tmp_path, call):
    folder = changed(model, tmp_path, lambda stated: stated.update(rms_norm_eps=-256))
    assert_one_line(call("generate", folder, "w5"), "config.json: Validation error for field 'rms_norm_eps': TypeError")


@pytest.mark.parametrize(
    "change",
    [
        lambda stated: stated["quantization_config"].pop("layers"),
        lambda stated: stated["quantization_config"].update(layers=[1]),
        lambda stated: stated["quantization_config"].update(layers={"lm_head": 3}),
        lambda stated: next(iter(stated["quantization_config"]["layers"].values())).pop("streams"),
        lambda stated: next(iter(stated["quantization_config"]["layers"].values())).pop("activations"),
        lambda stated: next(iter(stated["quantization_config"]["layers"].values())).update(activations="int9"),
        lambda stated: stated["quantization_config"].update(recipe=3),
        lambda stated: stated["quantization_config"]["recipe"].update(kv_cache=3),
    ],
)
def test_packed_layers_that_are_described_wrongly(model, tmp_path, call, change):
    assert_one_line(call("generate", changed(model, tmp_path, change), "w5"))


def test_a_cache_file_of_halves(tmp_path):
    model = tiny.make("llama", **SIZES)
    layer = {"columns": 1, "lengths": [1], "heads": 2, "channels": 32, "window": None, "sha256": {}}
    of_model = asdict(tilepress.kv_cache(model, "bfp4").fingerprint)
    header = {"kv_cache": "fp16", "smoothing": "none", "model": of_model, "tokens": [[5]], "layers": [layer] * 3}
    sealed.write_sealed(tmp_path / "x", {"a": torch.zeros(1)}, {"version": kv_caches.VERSION, **header})
    with pytest.raises(DamagedError, match="is damaged: a cache in fp16 is never saved"):
        tilepress.load_kv_cache(model, tmp_path / "x")


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    return MixtralForCausalLM(MixtralConfig(**tiny.GATED, num_local_experts=2, num_experts_per_tok=1))


def test_a_model_that_uses_weights_itself(tmp_path, call):
    """Its code multiplies by the weight of `dt_proj`, without calling that layer: that one is left as it is."""
    from transformers import MambaConfig, MambaForCausalLM

    sizes = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 8, "time_step_rank": 4}
    MambaForCausalLM(MambaConfig(**sizes, bos_token_id=1, eos_token_id=2)).save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(tiny.text())
    calibrated = ("--prune", "wanda", "--density", 0.5, "--calibration", tmp_path / "text.txt", "--length", 16)
    done = call("compress", tmp_path / "model", "-o", tmp_path / "out", *calibrated, "--sequences", 2)
    assert done.returncode == 0, done.stderr
    assert "backbone.layers.*.mixer.dt_proj" in done.stdout and "reads its weights by itself" in done.stdout


@pytest.mark.parametrize("change", [{"intermediate_size": 96}, {"num_local_experts": 1}])
@pytest.mark.parametrize("use", ["generate", "compress"])
def test_sizes_that_do_not_fit_an_unusual_model(tmp_path, call, change, use):
    """Its experts are joined as they are loaded."""
    mixtral().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    stated = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps(stated | change))
    options = ("w5",) if use == "generate" else ("-o", tmp_path / "out")
    assert_one_line(call(use, tmp_path / "model", *options), "fetch or save the model again")
    if use == "generate":
        with pytest.raises(ModelUnavailableError):
            load_model(str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tokenizer_config.json", {"bos_token": 1.5}),
        ("tokenizer_config.json", {"tokenizer_class": 3}),
        ("tokenizer.json", {"added_tokens": 3}),
        ("tokenizer.json", {"model": {"type": "WordLevel", "vocab": {"a": "A"}, "unk_token": "a"}}),
    ],
)
def test_files_of_a_model_with_values_of_other_types(tmp_path, call, name, change):
    folder, _ = tiny.save(tmp_path / "model")
    stated = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(stated | change))
    done = call("generate", folder, "w5", "--tokens", 2)
    assert_one_line(done, "holds no tokenizer that transformers can read")
