"""A compressed folder with one bit changed, anywhere in any file, is not loaded; nor one with a forged list."""

import json
import os
import random
import shutil
import subprocess

import pytest
from safetensors import safe_open
from tests.models import tiny
from transformers import AutoModelForCausalLM

from tilepress.models import ModelUnavailableError, compress_folder, load_model
from tilepress.models import checksums as sums
from tilepress.models.checksums import CARD, SUMS, check_sums
from tilepress.nn import packed
from tilepress.tiles import DamagedError

RECIPE = {"weights": {"format": "int4:g32", "density": 0.5}}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder, _ = tiny.save(tmp_path_factory.mktemp("sums") / "model", "qwen2")  # has biases
    compress_folder(str(folder), folder.parent / "out", RECIPE, shard_bytes=1000)  # several files of weights
    return folder.parent / "out"


@pytest.fixture
def folder(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "out")


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def tensors(path):
    """Name → where its bytes begin and end in the file."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__")
    return {name: tuple(start + at for at in entry["data_offsets"]) for name, entry in header.items()}


def test_every_file_is_listed_as_sha256sum_does(folder):
    lines = (folder / SUMS).read_text().splitlines()
    assert {line[66:] for line in lines} == set(os.listdir(folder)) - {SUMS, CARD} and lines == sorted(
        lines, key=lambda x: x[66:]
    )
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=folder, check=True, capture_output=True)
    assert json.loads((folder / "config.json").read_text())["quantization_config"]["checksums"] == SUMS
    load_model(str(folder))


def test_any_bit_of_any_file(folder):
    chance = random.Random(0)
    for path in sorted(set(folder.iterdir()) - {folder / CARD}):
        size = 8 * path.stat().st_size
        for bit in {0, 7, 64, size - 1, size - 8, *(chance.randrange(size) for _ in range(20))} & set(range(size)):
            flip(path, bit)
            with pytest.raises(DamagedError) as error:
                check_sums(folder)
            assert path.name in str(error.value) or path.name == SUMS, bit
            flip(path, bit)
    check_sums(folder)


def test_any_bit_of_the_list(folder):
    path, line = folder / SUMS, 8 * len(f"{'0' * 64}  config.json\n")
    for bit in [*range(line), *random.Random(2).sample(range(line, 8 * path.stat().st_size), 100)]:
        flip(path, bit)
        with pytest.raises(DamagedError):
            check_sums(folder)
        flip(path, bit)


def test_both_loaders_refuse_every_region(folder):
    chance = random.Random(1)
    for path in sorted(set(folder.iterdir()) - {folder / CARD}):
        size = path.stat().st_size
        for byte in (chance.randrange(size) for _ in range(3)):
            flip(path, 8 * byte)
            with pytest.raises((DamagedError, ModelUnavailableError), match=path.name if path.name != SUMS else None):
                load_model(str(folder))
            is_first = path.name in ("config.json", "model.safetensors.index.json")  # which transformers reads first
            expected = Exception if is_first else DamagedError
            with pytest.raises(expected):
                AutoModelForCausalLM.from_pretrained(folder)
            flip(path, 8 * byte)
    load_model(str(folder))


def test_embeddings_norms_biases_and_descriptions(folder):
    """What the checksums of packed layers do not cover."""
    streams = (".codes", ".mask", ".offsets", ".scales")
    refused = 0
    for path in folder.glob("*.safetensors"):
        for begin, end in (place for name, place in tensors(path).items() if not name.endswith(streams)):
            flip(path, 8 * ((begin + end) // 2))
            with pytest.raises(
                DamagedError, match=rf"{path.name} is damaged: its checksum in SHA256SUMS does not match"
            ):
                AutoModelForCausalLM.from_pretrained(folder)
            flip(path, 8 * ((begin + end) // 2))
            refused += 1
    assert refused > 30


def test_packed_layers_are_hashed_once(folder, monkeypatch):
    """With their file; one by one only where that is not listed."""
    checked, restore = [], packed.restore
    monkeypatch.setattr(
        packed, "restore", lambda *all, is_checked: checked.append(is_checked) or restore(*all, is_checked=is_checked)
    )
    AutoModelForCausalLM.from_pretrained(folder)
    assert set(checked) == {True}
    checked.clear()
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(line for line in lines if "model-00001" not in line))
    AutoModelForCausalLM.from_pretrained(folder)
    assert set(checked) == {False}


def test_missing_files_and_a_missing_list(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DamagedError, match=r"out lacks tokenizer.json, which SHA256SUMS lists: copy or compress"):
        load_model(str(folder))
    (folder / SUMS).unlink()
    with pytest.raises(DamagedError, match=r"out lacks SHA256SUMS, without which damage is not seen: copy it too"):
        AutoModelForCausalLM.from_pretrained(folder)
    subprocess.run("sha256sum *.json *.safetensors > SHA256SUMS", shell=True, cwd=folder, check=True)  # as it proposes
    AutoModelForCausalLM.from_pretrained(folder)


def test_a_file_that_the_user_changed_loads_without_its_line(folder):
    config = json.loads((folder / "generation_config.json").read_text()) | {"temperature": 0.5, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(config))
    with pytest.raises(DamagedError, match=r"generation_config.json is damaged.* remove its line from SHA256SUMS"):
        load_model(str(folder))
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    (folder / SUMS).write_text("".join(line for line in lines if "generation_config" not in line))
    assert load_model(str(folder)).model.generation_config.temperature == 0.5


def test_folders_of_the_version_before_load_and_check_their_layers(folder):
    """They have no list, and their config names none."""
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]["checksums"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / SUMS).unlink()
    load_model(str(folder))
    path = next(iter(sorted(folder.glob("*.safetensors"))))
    begin, _ = tensors(path)["model.layers.0.mlp.up_proj.codes"]
    flip(path, 8 * begin)
    with pytest.raises(DamagedError, match=r"model.layers.0.mlp.up_proj.codes is damaged"):
        load_model(str(folder))


def test_another_programs_list_beside_an_ordinary_model(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    (folder / SUMS).write_text("of files that are elsewhere")
    load_model(str(folder))


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe", b"\n", b"x\n", b"0" * 64 + b"  config.json", b"0" * 64 + b" *config.json\n",
        b"0" * 64 + b"  ../config.json\n", b"0" * 64 + b"  /etc/passwd\n", b"0" * 64 + b"  ..\n",
        b"A" * 64 + b"  config.json\n", 2 * (b"0" * 64 + b"  config.json\n"), b"0" * 64 + b"  SHA256SUMS\n",
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused(folder, text):
    (folder / SUMS).write_bytes(text)
    with pytest.raises(
        DamagedError, match=r"SHA256SUMS is no list of checksums \(.*\): copy or compress the model again"
    ):
        load_model(str(folder))


def test_lists_and_devices_without_end(folder, monkeypatch):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/dev/zero")
    with pytest.raises(DamagedError, match=r"lacks tokenizer.json"):
        check_sums(folder)
    monkeypatch.setattr(sums, "LONGEST", 100)
    with pytest.raises(DamagedError, match=r"is no list of checksums \(it is longer than 100 bytes\)"):
        check_sums(folder)


def test_a_model_saved_from_memory(folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    tiny.tokenizer().save_pretrained(tmp_path / "saved")
    listed = check_sums(tmp_path / "saved")
    assert {"config.json", "generation_config.json", "model.safetensors.index.json"} < listed
    assert {path.name for path in (tmp_path / "saved").glob("*.safetensors")} < listed and len(listed) > 6
    norm = next(path for path in (tmp_path / "saved").glob("*.safetensors") if "model.norm.weight" in tensors(path))
    flip(norm, 8 * tensors(norm)["model.norm.weight"][0])
    with pytest.raises(DamagedError, match=rf"{norm.name} is damaged"):
        load_model(str(tmp_path / "saved"))
    (tmp_path / "saved/.model.abcdefgh.part").mkdir()  # as a killed save leaves it
    model.save_pretrained(tmp_path / "saved")  # one file now: the shards go, the tokenizer stays
    assert [path.name for path in (tmp_path / "saved").glob("model*")] == ["model.safetensors"]
    assert not [name for name in os.listdir(tmp_path / "saved") if name.startswith(".")]
    load_model(str(tmp_path / "saved"))


def test_a_model_saved_over_the_folder_it_came_from(folder):
    """The tokenizer's lines stay, and a copy saves its own weights."""
    from copy import deepcopy

    names = set(os.listdir(folder))
    model = deepcopy(AutoModelForCausalLM.from_pretrained(folder))
    model.model.norm.weight.data += 1
    model.save_pretrained(folder)
    assert "tokenizer.json" in check_sums(folder) and "tokenizer.json" in names
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert (file.get_tensor("model.norm.weight") == model.model.norm.weight).all()
    flip(folder / "tokenizer.json", 80)
    with pytest.raises(DamagedError, match=r"tokenizer.json is damaged"):
        load_model(str(folder))


def test_a_model_made_dense_again_has_no_list(folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(folder).dequantize()
    model.save_pretrained(tmp_path / "dense")
    assert not (tmp_path / "dense" / SUMS).exists()
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "dense").config.model_type == "qwen2"
