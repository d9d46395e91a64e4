"""Engines of models: by name or as they are, with the cache that was asked for or fits."""

import pytest
import torch
from tests.engine.families import make, tokens

import tilepress
from tilepress._sizes import size_in_bytes
from tilepress.engine import Engine, Sampling
from tilepress.engine.native import NativeModel
from tilepress.engine.packed import PackedModel
from tilepress.formats import FormatError
from tilepress.models import load_model
from tilepress.nn.model_kv_cache import set_default_cache

GREEDY = Sampling(max_tokens=12, temperature=0)


def said(engine, prompt):
    return engine.submit(prompt, GREEDY).wait().tokens


def generated(model, prompt, **options):
    out = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None, **options)
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("kv", ["float32", "bfp8", "sparse:k30,v50"])
@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_answers_are_those_of_transformers_with_that_cache(family, kv):
    model, prompt = make(family), tokens(40)
    cache = None if kv == "float32" else tilepress.kv_cache(model, kv)
    assert said(Engine(model, kv, eos=[]), prompt) == generated(model, prompt, past_key_values=cache)


def test_a_model_by_name_speaks():
    engine, loaded = Engine("smollm2-135m", kv="bfp8"), load_model("smollm2-135m")
    stream = engine.submit("The capital of France is", Sampling(max_tokens=5, temperature=0)).wait()
    assert stream.text == loaded.tokenizer.decode(stream.tokens) and stream.text.startswith(" Paris")
    assert engine.eos == {loaded.model.generation_config.eos_token_id}


@pytest.mark.parametrize(
    ("family", "kv", "kind", "format"),
    [
        ("llama", None, PackedModel, "bfp8"),
        ("llama", "bfp4", PackedModel, "bfp4"),
        ("olmo2", None, NativeModel, None),  # heads of 16
        ("llama", "bf16", NativeModel, None),
        ("qwen3_moe", None, PackedModel, "bfp8"),
        ("mixtral", None, NativeModel, None),  # heads of 16
    ],
)
def test_which_runner(family, kv, kind, format):
    runner = Engine(make(family), kv, kv_memory="1 MB").runner
    assert type(runner) is kind
    assert format is None or str(runner.format) == format
    assert 1_000_000 - runner.page_bytes < runner.pages * runner.page_bytes <= 1_000_000


def test_the_cache_that_a_model_remembers():
    model = make("llama")
    set_default_cache(model, "bfp4")
    assert str(Engine(model).runner.format) == "bfp4" and Engine(model).runner.smoothing == "none"
    set_default_cache(model, "bfp8", "online")
    assert [Engine(model, kv).runner.smoothing for kv in (None, "bfp8")] == ["online", "none"]
    prompt = tokens(40)
    assert said(Engine(model, eos=[]), prompt) == generated(model, prompt)


def test_threads():
    engine = Engine(make("llama"), threads=1)
    assert engine.runner.threads == 1
    with pytest.raises(ValueError, match="at least one thread is needed, not 0"):
        Engine(make("llama"), threads=0)


def test_prefixes_are_kept_or_not():
    prompt, model = tokens(100), make("llama")
    for prefix_cache, found in [(True, 96), (False, 0)]:
        engine = Engine(model, "bfp8", prefix_cache=prefix_cache)
        answers = [said(engine, prompt) for _ in range(2)]
        assert answers[0] == answers[1] and engine.stats.prefix_tokens == found


def test_what_is_refused():
    model = make("llama")
    with pytest.raises(FormatError, match="none in fp16"):
        Engine(model, "fp16")
    with pytest.raises(FormatError, match="is no cache format"):
        Engine(model, "bfp99")
    with pytest.raises(ValueError, match="1000 bytes are no room for a cache, whose smallest part has"):
        Engine(model, kv_memory=1000)
    with pytest.raises(ValueError, match="this engine has no tokenizer: give ids of tokens"):
        Engine(model).submit("hello")


@pytest.mark.parametrize(
    ("size", "expected"),
    {"4 GiB": 4 << 30, "1.5GB": 1_500_000_000, "500 MB": 500_000_000, "64 KiB": 65536, "7": 7, 9: 9}.items(),
)
def test_sizes(size, expected):
    assert size_in_bytes(size) == expected


@pytest.mark.parametrize("size", ["", "4 gigs", "-1 GiB", "GiB", "1e9", "4 GiB of it"])
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="a size of memory is like 4 GiB or 500 MB, not"):
        size_in_bytes(size)
