"""KV caches in files: taken up as they were, and refused where they are damaged or another model's."""

from random import Random

import pytest
import torch
from tests.nn.kv_models import SIZES, logits, make, prompt
from transformers import LlamaConfig, LlamaForCausalLM

import tilepress
from tilepress.nn import model_kv_cache
from tilepress.tiles import DamagedError


def filled(model, format, tokens=50):
    """A cache that holds a prompt."""
    cache = tilepress.kv_cache(model, format)
    logits(model, prompt(tokens), cache)
    return cache


def test_a_file_that_lies_is_refused(tmp_path):
    """Sealed anew, with masks that ask for more values than there are."""
    model, path = make(), tmp_path / "talk.safetensors"
    cache = filled(model, "sparse:k30,v50")
    layer = cache.layers[1].store
    state = layer.state()
    layer.state = lambda: {**state, "masks": torch.full_like(state["masks"], 255)}
    cache.save(path)
    with pytest.raises(DamagedError, match="layer 1 is damaged: masks ask for more values than a block has"):
        tilepress.load_kv_cache(model, path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tokens": [[1, 2]]}, r"has tokens \[1, 2\], and holds 50 of a sequence"),
        ({"tokens": [[1, 2], [3]]}, "its tokens cannot be understood"),
        ({"tokens": "w5"}, "its tokens cannot be understood"),
        ({"layers": None}, "holds no KV cache"),
        ({"layers": [{"columns": 0}] * 2}, "the header cannot be understood"),
        ({"layers": [{"columns": 1, "lengths": [1] * 9999, "sha256": {}}] * 2}, "the header cannot be understood"),
        ({"kv_cache": "bfp5"}, "is no cache format"),
        ({"layers": [{"columns": float("inf"), "lengths": [1], "sha256": {}}] * 2}, "the header cannot be understood"),
        ({"kv_cache": "bfp8"}, "layer 0 is damaged"),
        ({"kv_cache": "bfp:m4:hi8:initial1048576:local1048576"}, "write initial and local of 4096 tokens or fewer"),
        ({"kv_cache": "bfp:m4:hi8:initial2048:local2048"}, "1 sequences have more bytes than there are"),
        ({"kv_cache": "fp16"}, "a cache in fp16 is never saved"),
        ({"version": 2}, "version 2; this tilepress reads version 3"),
        ({"model": "0" * 64}, "holds no KV cache"),
        ({"model": {"exact": "0"}}, "holds no KV cache"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, monkeypatch, change, why):
    """Sealed anew."""
    model, path = make(), tmp_path / "talk.safetensors"
    cache = filled(model, "bfp4")
    seal = model_kv_cache.write_sealed
    monkeypatch.setattr(model_kv_cache, "write_sealed", lambda *two: seal(*two[:2], {**two[2], **change}))
    cache.save(path, prompt(50))
    with pytest.raises((DamagedError, ValueError), match=why):
        tilepress.load_kv_cache(model, path)


@pytest.mark.parametrize(
    ("field", "value"), [("lengths", [0] * 100_000), ("lengths", [10**30]), ("sha256", {"codes": "0", "more": "1"})]
)
def test_layers_that_lie_are_refused(tmp_path, monkeypatch, field, value):
    model, path = make(), tmp_path / "talk.safetensors"
    cache = filled(model, "bfp4")
    describe = model_kv_cache.describe_layer

    def lie(layer):
        description, arrays = describe(layer)
        return {**description, field: value}, arrays

    monkeypatch.setattr(model_kv_cache, "describe_layer", lie)
    cache.save(path)
    with pytest.raises(DamagedError):
        tilepress.load_kv_cache(model, path)


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_no_byte_of_a_file_changes_unseen(tmp_path, name):
    model, path = make(), tmp_path / "talk.safetensors"
    cache = filled(model, name, 34)
    cache.save(path, prompt(34))
    whole, random = path.read_bytes(), Random(0)
    for _ in range(60):
        at = random.randrange(len(whole))
        cut = random.random() < 0.3
        path.write_bytes(
            whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1 << random.randrange(8)]) + whole[at + 1 :]
        )
        with pytest.raises(DamagedError):
            tilepress.load_kv_cache(model, path)
    path.write_bytes(whole)
    assert torch.equal(tilepress.load_kv_cache(model, path).tokens, prompt(34))


SAVED = [("bfp4", "none"), ("bfp4", "online"), ("sparse:k30,v50", "none"), ("bfp8+sparse:k30,v50", "online")]


@pytest.mark.parametrize("family", ["llama", "sliding"])
@pytest.mark.parametrize(("name", "smoothing"), SAVED)
@pytest.mark.parametrize("tokens", [0, 20, 90])
def test_a_saved_cache_goes_on(tmp_path, family, name, smoothing, tokens):
    model = make(family)
    cache = tilepress.kv_cache(model, name, smoothing)
    if tokens:
        mask = torch.ones(2, tokens, dtype=torch.long)
        mask[1, :6] = 0
        logits(model, prompt(tokens, batch=2), cache, mask=mask)
    cache.save(tmp_path / "talk.safetensors")
    again = tilepress.load_kv_cache(model, tmp_path / "talk.safetensors")
    assert again.get_seq_length() == tokens and again.format == cache.format
    if tokens:
        mask = torch.nn.functional.pad(mask, (0, 4), value=1)
        more = [logits(model, prompt(4, batch=2), c, mask=torch.cat([mask], 1)) for c in (cache, again)]
        assert torch.equal(*more)


@pytest.mark.parametrize("name", ["bfp4", "sparse:k30,v50"])
def test_a_damaged_or_foreign_file_is_refused(tmp_path, name):
    model, path = make(), tmp_path / "talk.safetensors"
    cache = filled(model, name)
    cache.save(path)
    whole = path.read_bytes()
    for at in (20, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedError):
            tilepress.load_kv_cache(model, path)
    path.write_bytes(whole[:-5])
    with pytest.raises(DamagedError):
        tilepress.load_kv_cache(model, path)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="another model's: 2 heads of 32 channels, not 1 of 32"):
        tilepress.load_kv_cache(make("multi-query"), path)
    other = make()
    other.model.layers[0].self_attn.v_proj.weight.data[0, 0] += 0.5
    with pytest.raises(ValueError, match="another model's cache: the weights that made it are not this model's"):
        tilepress.load_kv_cache(other, path)
    assert tilepress.load_kv_cache(make().to(torch.bfloat16), path).get_seq_length() == 50
    with pytest.raises(ValueError, match="another model's cache: it has 2 layers, not 3"):
        tilepress.load_kv_cache(LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_hidden_layers": 3})), path)
    with pytest.raises(ValueError, match="only packed caches are saved"):
        tilepress.kv_cache(model, "fp16").save(path)
    assert path.read_bytes() == whole
