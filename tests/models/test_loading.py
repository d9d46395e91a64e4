"""Models by name."""

import os

import numpy as np
import pytest
import torch

from tests.models import tiny
from tests.models.gguf_files import write_gguf
from tilepress.models import ModelUnavailableError, load_model, loading, model_folder
from tilepress.models.gguf.folder import gguf_folder


def test_a_folder(llama_folder):
    loaded = load_model(str(llama_folder[0]))
    assert loaded.name == str(llama_folder[0]) and not loaded.model.training
    assert loaded.tokenizer("w5 w6")["input_ids"] == [5, 6]
    assert load_model(str(llama_folder[0]), dtype=torch.float16).model.dtype == torch.float16


@pytest.mark.parametrize(("features", "dtype"), [([], torch.float32), (["amx_bf16"], torch.bfloat16)])
def test_halves_are_widened_where_they_would_be_emulated(tmp_path, monkeypatch, features, dtype):
    tiny.make("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(loading, "cpu_features", lambda: features)
    assert load_model(str(tmp_path)).model.dtype == dtype


@pytest.mark.filterwarnings("ignore")  # transformers' own report of them comes first
def test_missing_tensors_are_not_replaced_by_random_ones(tmp_path):
    model = tiny.make("llama")
    state = {name: value for name, value in model.state_dict().items() if name != "model.norm.weight"}
    model.save_pretrained(tmp_path, state_dict=state)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelUnavailableError, match=r"lacks 1 tensors, model.norm.weight among them, and random"):
        load_model(str(tmp_path))


def test_what_is_no_model_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ModelUnavailableError, match=r"is a folder without a config.json"):
        model_folder(str(tmp_path))
    (tmp_path / "model.bin").write_text("")
    with pytest.raises(ModelUnavailableError, match="is a file, but not a GGUF one"):
        model_folder(str(tmp_path / "model.bin"))
    with pytest.raises(ModelUnavailableError, match="the model's name is empty"):
        model_folder("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ModelUnavailableError, match=r"'/no/such/model' is neither a folder or a GGUF file here nor smoll"
    ):
        model_folder("/no/such/model")


def test_models_that_do_not_write_are_refused(tmp_path):
    from transformers import BertConfig, BertForMaskedLM, T5Config

    sizes = {"vocab_size": 8, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(**sizes, num_hidden_layers=1)).save_pretrained(tmp_path / "bert")
    T5Config(vocab_size=8).save_pretrained(tmp_path / "t5")
    for name, kind in (("bert", "BertForMaskedLM"), ("t5", "t5")):
        with pytest.raises(ModelUnavailableError, match=f"holds a {kind} model, which does not write text") as error:
            load_model(str(tmp_path / name))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{nope", "[1]", "{}", '{"model_type": "no_such_model"}'])
def test_configs_that_say_nothing_are_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelUnavailableError, match=r"transformers cannot read .*/config.json: ") as error:
        load_model(str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_truncated_file_of_weights(tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelUnavailableError, match=r"the weights of .*model cannot be read: "):
        load_model(str(folder))


def write_hub_cache(cache, name):
    """A model as huggingface_hub keeps what it has downloaded; returns the folder with its files."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    root = cache / f"models--{name.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs/main").write_text(commit)
    return tiny.save(root / "snapshots" / commit)[0]


def test_a_name_of_the_hub_that_was_downloaded_before(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = write_hub_cache(tmp_path, "someone/some-model")
    assert model_folder("someone/some-model") == folder
    assert load_model("someone/some-model").name == "someone/some-model"
    with pytest.raises(ModelUnavailableError, match=r"'someone/another' is neither .*: check the spelling") as error:
        model_folder("someone/another")
    assert "\n" not in str(error.value)


def test_a_name_of_the_hub_without_a_network(monkeypatch):
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(name, **_):
        raise LocalEntryNotFoundError("the Hub cannot be reached\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ModelUnavailableError) as error:
        model_folder("someone/some-model")
    assert "'someone/some-model' is neither" in str(error.value)
    assert "(the Hub cannot be reached): check the spelling or the path" in str(error.value)


@pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows
def test_a_gguf_file_is_read_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    weights = write_gguf(tmp_path / "toy.gguf")
    pytest.importorskip("accelerate")
    messages, umask = [], os.umask(0o027)
    loaded = load_model(str(tmp_path / "toy.gguf"), announce=messages.append)
    os.umask(umask)
    layer = loaded.model.model.layers[0]
    assert loaded.model.dtype == torch.float32
    assert np.array_equal(layer.mlp.up_proj.weight.detach().numpy(), weights["blk.0.ffn_up"])
    folder = model_folder(str(tmp_path / "toy.gguf"), announce=messages.append)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir() if not path.is_symlink()} == {0o640}
    assert not messages and folder.parent == tmp_path / "cache" and len(os.listdir(folder.parent)) == 1
    assert not list(folder.glob("*.safetensors"))


def test_gguf_without_its_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path))
    (tmp_path / "x.gguf").write_text("")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelUnavailableError, match=r"needs the package gguf: pip install 'tilepress\[gguf\]'"):
        gguf_folder(tmp_path / "x.gguf", print)


def test_a_broken_gguf_file(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "toy.gguf")
    whole = (tmp_path / "toy.gguf").read_bytes()
    for content in (b"no such thing", whole[:30], whole[:100], whole[: len(whole) // 2], whole[:-100]):
        (tmp_path / "x.gguf").write_bytes(content)
        with pytest.raises(ModelUnavailableError, match=r"x.gguf(; is the file whole\?| is no whole GGUF file: )"):
            model_folder(str(tmp_path / "x.gguf"), announce=lambda _: None)
    assert not list((tmp_path / "cache").iterdir())


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own, and the packages that read GGUF files."""
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    monkeypatch.setenv("TILEPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def parts(tmp_path):
    """The four files of a split model, and its weights."""
    weights = write_gguf(tmp_path / "toy.gguf", blocks=2, split_max_tensors=6)
    return sorted(tmp_path.glob("toy-*.gguf")), weights


@pytest.mark.filterwarnings("ignore")  # the tokenizer of the toy is not one that transformers knows
@pytest.mark.parametrize("named", [0, 2])
def test_a_split_gguf_file_is_read_whole(cache, parts, named):
    files, weights = parts
    assert [file.name for file in files] == [f"toy-0000{number}-of-00004.gguf" for number in (1, 2, 3, 4)]
    model = load_model(str(files[named]), announce=lambda _: None).model
    for number, layer in enumerate(model.model.layers):
        assert np.array_equal(layer.mlp.down_proj.weight.detach().numpy(), weights[f"blk.{number}.ffn_down"])
    assert np.array_equal(model.lm_head.weight.detach().numpy(), weights["output"])


def assert_refused(path, cache, text):
    """`path` does not load, for the reason `text`, in one line, and leaves nothing behind."""
    with pytest.raises(ModelUnavailableError, match=text) as error:
        model_folder(str(path), announce=lambda _: None)
    assert "\n" not in str(error.value) and not list(cache.iterdir())


def test_parts_of_a_split_gguf_file_that_are_not_all_there(cache, parts, tmp_path):
    files, _ = parts
    whole = files[2].read_bytes()
    files[2].rename(tmp_path / "alone.gguf")
    assert_refused(files[0], cache, r"toy-00001-of-00004.gguf is one of 4 parts, without toy-00003-of-00004.gguf: put")
    files[2].write_bytes(files[3].read_bytes())
    assert_refused(files[0], cache, r"toy-00003-of-00004.gguf is not the part that its name says: fetch it again")
    files[2].write_bytes(whole)
    files[0].rename(tmp_path / "first.gguf")
    assert_refused(tmp_path / "first.gguf", cache, r"first.gguf is part 1 of 4 of a split GGUF file: put all parts")
    assert_refused(tmp_path / "alone.gguf", cache, r"transformers cannot read .*alone.gguf; is the file whole\?")


@pytest.mark.filterwarnings("ignore")
def test_files_of_the_same_name_elsewhere_have_no_say(cache, tmp_path, monkeypatch):
    """Neither one in the current folder nor the files of another model beside it."""
    weights = write_gguf(tmp_path / "toy.gguf")
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["code.Tokenizer", null]}}')
    (tmp_path / "here").mkdir()
    (tmp_path / "here/toy.gguf").write_text("another")
    (tmp_path / "here/whole.gguf").write_text("another")
    monkeypatch.chdir(tmp_path / "here")
    model = load_model(str(tmp_path / "toy.gguf"), announce=lambda _: None).model
    assert np.array_equal(model.lm_head.weight.detach().numpy(), weights["output"])


@pytest.mark.filterwarnings("ignore")
def test_factors_of_rotary_embeddings_are_left_out_with_a_word(cache, tmp_path):
    names = {"output.weight": "rope_freqs.weight"}
    write_gguf(tmp_path / "toy.gguf", rename=lambda name: names.get(name, name))
    said = []
    load_model(str(tmp_path / "toy.gguf"), announce=said.append)
    assert said[0].startswith("toy.gguf: transformers does not read rope_freqs.weight; very long texts may come out")
