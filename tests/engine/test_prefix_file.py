"""Beginnings of prompts in files: prompts go on from there as if they had been computed, in the engine and in
transformers."""

import pytest
import torch
from tests.engine.families import make, tokens
from tests.engine.toy import ToyRunner, check_pages

import tilepress
from tilepress.engine import Engine, Sampling
from tilepress.engine.native import NativeModel
from tilepress.engine.packed import PackedModel
from tilepress.nn.model_kv_cache import load_kv_cache
from tilepress.tiles import DamagedError

PAGES, START = 32, tokens(140)
PROMPT = START[:130] + tokens(20, seed=2)
GREEDY = Sampling(max_tokens=8, temperature=0)
CACHES = ["bfp8", "bfp4", "bfp4n+rotate", "sparse:k30,v50", "bfp8+sparse:k30,v50"]


@pytest.fixture(scope="module")
def llama():
    return make("llama", max_position_embeddings=512)


def engine_of(model, kv="bfp8", pages=PAGES, **options):
    return Engine(PackedModel(model, kv, pages, **options), step_tokens=50)


@pytest.mark.parametrize("kv", CACHES)
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_prompts_go_on_from_a_file(family, kv, tmp_path):
    model = make(family, max_position_embeddings=512)
    first, second, alone = (engine_of(model, kv) for _ in range(3))
    assert first.save_prefix(START, tmp_path / "start") == second.load_prefix(tmp_path / "start") == 128
    assert second.submit(PROMPT, GREEDY).wait().tokens == alone.submit(PROMPT, GREEDY).wait().tokens
    assert second.stats.prefix_tokens == 128 and alone.stats.prefix_tokens == first.stats.prefix_tokens == 0
    for engine in (first, second):
        check_pages(engine)
        assert engine.stats.pages_used == 0
    assert second.submit(PROMPT, GREEDY).wait().tokens == second.submit(PROMPT, GREEDY).wait().tokens


def test_online_smoothing_is_kept(llama, tmp_path):
    first, second, alone = (engine_of(llama, "bfp:m4", smoothing="online") for _ in range(3))
    first.save_prefix(START, tmp_path / "start")
    second.load_prefix(tmp_path / "start")
    assert second.submit(PROMPT, GREEDY).wait().tokens == alone.submit(PROMPT, GREEDY).wait().tokens


def test_a_file_is_one_of_transformers_caches(llama, tmp_path):
    """And the other way round."""
    engine_of(llama).save_prefix(START, tmp_path / "start")
    cache = load_kv_cache(llama, tmp_path / "start")
    assert cache.tokens.tolist() == [list(START[:128])] and cache.get_seq_length() == 128
    prompt = torch.tensor([START])
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "attention_mask": torch.ones_like(prompt)}
    written = llama.generate(prompt, past_key_values=cache, **options)
    own = tilepress.kv_cache(llama, "bfp8")
    assert torch.equal(written, llama.generate(prompt, past_key_values=own, **options))
    own.save(tmp_path / "talk", written)
    engine = engine_of(llama)
    assert engine.load_prefix(tmp_path / "talk") == 128  # of 144, whole pages
    answer = engine.submit([*written[0].tolist(), 3], GREEDY).wait().tokens
    assert answer == engine_of(llama).submit([*written[0].tolist(), 3], GREEDY).wait().tokens
    assert engine.stats.prefix_tokens == 128


def test_what_is_known_already_stays(llama, tmp_path):
    engine = engine_of(llama)
    engine.save_prefix(START, tmp_path / "start")
    answer = engine.submit(PROMPT, GREEDY).wait().tokens
    engine.load_prefix(tmp_path / "start")
    assert engine.submit(PROMPT, GREEDY).wait().tokens == answer
    check_pages(engine)


def test_files_that_are_refused(llama, tmp_path):
    path = tmp_path / "start"
    engine_of(llama).save_prefix(START, path)
    with pytest.raises(ValueError, match="a cache in bfp8, smoothing none, and the engine's is bfp4"):
        engine_of(llama, "bfp4").load_prefix(path)
    with pytest.raises(ValueError, match="another model's cache"):
        engine_of(make("llama", max_position_embeddings=512, num_hidden_layers=1)).load_prefix(path)
    small = engine_of(llama, pages=3)
    for what in (lambda: small.load_prefix(path), lambda: small.save_prefix(START, path)):
        with pytest.raises(ValueError, match="fit in 3 free pages"):
            what()
        check_pages(small)
    with pytest.raises(ValueError, match="0 tokens of whole pages"):
        engine_of(llama).save_prefix(START[:20], tmp_path / "other")
    assert not (tmp_path / "other").exists()
    cache = tilepress.kv_cache(llama, "bfp4")
    llama(torch.tensor([START[:70]]), past_key_values=cache)
    cache.save(tmp_path / "middle", torch.tensor([START[:70]]))
    with pytest.raises(ValueError, match="its format takes none back: save a multiple of 32"):
        engine_of(llama, "bfp4").load_prefix(tmp_path / "middle")
    cache.save(tmp_path / "nameless")
    with pytest.raises(ValueError, match="does not say which tokens"):
        engine_of(llama, "bfp4").load_prefix(tmp_path / "nameless")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedError):
        engine_of(llama).load_prefix(path)


@pytest.mark.parametrize("engine", [lambda llama: NativeModel(llama, 32, 8), lambda _: ToyRunner()])
def test_engines_without_a_packed_cache(llama, engine, tmp_path):
    with pytest.raises(ValueError, match="only engines with a packed cache"):
        Engine(engine(llama)).save_prefix([1] * 40, tmp_path / "start")


def test_an_engine_that_keeps_no_prompts(llama, tmp_path):
    engine = Engine(PackedModel(llama, "bfp8", PAGES), prefix_cache=False)
    with pytest.raises(ValueError, match="and a prefix cache"):
        engine.load_prefix(tmp_path / "start")
