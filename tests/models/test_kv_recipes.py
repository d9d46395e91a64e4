"""Caches in recipes: a compressed model remembers its own, and `generate` and `eval` take it."""

import copy
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import tilepress
from tests.cli.conftest import call, call_for_records  # noqa: F401
from tests.cli.test_cli import assert_refused
from tests.models import tiny
from tilepress.formats import FormatError
from tilepress.models import compress_folder
from tilepress.models.checksums import digests_of, read_sums, write_sums
from tilepress.models.recipe import NAMED, read_recipe
from tilepress.nn.model_kv_cache import ModelKvCache, load_kv_cache, set_default_cache

SIZES = {"head_dim": 32, "max_position_embeddings": 256}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model, and the same compressed by the recipe `harmonia`."""
    folder, text = tiny.save(tmp_path_factory.mktemp("kv") / "model", **SIZES)
    calibration = {"text": str(text), "sequences": 2, "length": 48}
    compress_folder(str(folder), folder.parent / "out", {**NAMED["harmonia"], "calibration": calibration})
    return str(folder), str(folder.parent / "out"), str(text)


def caches_of(model, **options):
    """The cache that `generate` ended with."""
    output = model.generate(tiny.windows(1, 40), max_new_tokens=3, return_dict_in_generate=True, **options)
    return output.past_key_values


def test_harmonia_is_a_recipe():
    recipe = read_recipe("harmonia")
    assert (recipe.weights.format, recipe.activations.format) == ("int4:g32", "bfp:g32:m8")
    assert (recipe.kv_cache.format, recipe.kv_cache.smoothing) == ("bfp4", "hybrid")
    assert recipe.folds_scales and recipe.looks_at_text and not recipe.needs_hessian


def test_a_compressed_model_remembers_its_cache(folders):
    model = AutoModelForCausalLM.from_pretrained(folders[1]).eval()
    cache = caches_of(model)
    assert isinstance(cache, ModelKvCache) and (str(cache.format), cache.smoothing) == ("bfp4", "online")
    assert cache.layers[0].store.lengths == [42]
    assert isinstance(caches_of(copy.deepcopy(model)), ModelKvCache)
    assert isinstance(caches_of(model, past_key_values=DynamicCache(config=model.config)), DynamicCache)
    assert caches_of(model, use_cache=False) is None
    set_default_cache(model, "model")
    assert not isinstance(caches_of(model), ModelKvCache)


def test_in_memory_too():
    model = tiny.make("llama", **SIZES)
    tilepress.compress(model, {"kv_cache": {"format": "bfp8"}})
    assert str(caches_of(model).format) == "bfp8"


def test_a_model_that_cannot_have_it_is_refused_before_any_work(tmp_path):
    with pytest.raises(FormatError, match="heads of 16 channels cannot be cut in groups of 32"):
        tilepress.compress(tiny.make("llama"), {"kv_cache": {"format": "bfp4"}})


def test_the_command_line(folders, call, call_for_records):  # noqa: F811
    plain, small, text = folders
    assert call_for_records("generate", plain, "w5 w6", "--tokens", 4, "--kv", "bfp4", "--smoothing", "online")("text")
    assert call_for_records("generate", small, "w5 w6", "--tokens", 4)("text")
    how = ("--data", text, "--window", 100, "--windows", 2)
    values = {
        kv: call_for_records("eval", plain, *how, "--kv", kv)("perplexity", kv=kv) for kv in ("fp16", "bfp8", "bfp:m1")
    }
    assert abs(values["bfp8"] / values["fp16"] - 1) < 0.02 < abs(values["bfp:m1"] / values["fp16"] - 1)
    assert_refused(call("eval", plain, *how, "--kv", "bfp5"), "'bfp5' is no cache format")
    assert_refused(call("generate", plain, "w5", "--kv", "bfp5"), "'bfp5' is no cache format")
    assert_refused(call("eval", plain, *how, "--smoothing", "online"), "--smoothing is of the cache that --kv names")


def texts(figures):
    return figures.all("text")


@pytest.mark.parametrize("kv", [(), ("--kv", "sparse:k30,v50")])
def test_a_talk_goes_on_from_a_file(folders, tmp_path, kv, call_for_records):  # noqa: F811
    """Turns in one run, and one after the other with a file between them."""
    path = tmp_path / "talk.safetensors"
    how = (*kv, "--tokens", 5)
    expected = texts(call_for_records("generate", folders[1], "w5 w6", "w7 w8 w9", "w10", *how))
    saved = [
        texts(call_for_records("generate", folders[1], *turns, *how, "--cache", path))
        for turns in (["w5 w6"], ["w7 w8 w9", "w10"])
    ]
    assert [*saved[0], *saved[1]] == expected and len(set(expected)) == 3


def test_questions_after_replies(folders, tmp_path, call_for_records):  # noqa: F811
    """In a chat, tokens are those that the template gives for the whole talk."""
    folder = tmp_path / "chat"
    shutil.copytree(folders[1], folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = (
        "{% for m in messages %}w{{ 20 if m.role == 'user' else 21 }} {{ m.content }} <eos> {% endfor %}"
        "{% if add_generation_prompt %}w21 {% endif %}"
    )
    tokenizer.save_pretrained(folder)
    write_sums(folder, digests_of(folder, read_sums(folder)))  # changed on purpose
    path = tmp_path / "talk.safetensors"
    chat = ("--chat", "--tokens", 4, "--cache", path)
    first, second = texts(call_for_records("generate", folder, "w5", "w6 w7", *chat))
    tokens = load_kv_cache(AutoModelForCausalLM.from_pretrained(folder), path).tokens[0]
    turns = [("user", "w5"), ("assistant", first), ("user", "w6 w7")]
    messages = [{"role": role, "content": content} for role, content in turns]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    asked = tokenizer(asked, add_special_tokens=False)["input_ids"]
    assert tokens[: len(asked)].tolist() == asked
    assert tokenizer.decode(tokens[len(asked) :], skip_special_tokens=True) == second


def test_what_is_wrong_with_a_talk_is_said(folders, tmp_path, call):  # noqa: F811
    plain, small, _ = folders
    path = tmp_path / "talk.safetensors"
    how = ("--tokens", 3, "--cache", path)
    assert_refused(call("generate", plain, "w5", *how), "--cache saves packed caches: give --kv bfp8")
    assert_refused(call("generate", small, "w5", *how, "--kv", "fp16"), "--cache saves packed caches")
    assert_refused(
        call("generate", small, "w5", "--smoothing", "online"), "--smoothing is of the cache that --kv names"
    )
    assert not path.exists() and call("generate", small, "w5", *how).returncode == 0
    whole = path.read_bytes()
    assert_refused(call("generate", small, "w5", *how, "--kv", "bfp8"), "holds a cache in bfp4, not in bfp8")
    assert_refused(call("generate", plain, "w5", *how), "the weights that made it are not this model's")
    path.write_bytes(whole[:-7])
    assert_refused(call("generate", small, "w5", *how), "is not a whole safetensors file")
    path.write_bytes(whole)
    load_kv_cache(AutoModelForCausalLM.from_pretrained(small), path).save(path)
    assert_refused(call("generate", small, "w5", *how), "holds no tokens of one text")


def test_eval_takes_the_cache_that_the_model_remembers(folders, call_for_records):  # noqa: F811
    _, small, text = folders
    how = ("eval", small, "--data", text, "--window", 100, "--windows", 1)
    remembered, said, plain = (
        call_for_records(*how, *more)("perplexity")
        for more in ((), ("--kv", "bfp4", "--smoothing", "online"), ("--kv", "fp16"))
    )
    assert remembered == said != plain


def test_sequences_of_a_compressed_model(folders):
    model = AutoModelForCausalLM.from_pretrained(folders[1]).eval()
    prompt = tiny.windows(1, 30)
    with torch.no_grad():
        whole = model(prompt, past_key_values=tilepress.kv_cache(model, "bfp8")).logits
        plain = model(prompt).logits
    assert (whole - plain).norm() < 0.2 * plain.norm()
