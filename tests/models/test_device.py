"""Models compressed on another device than the CPU: nearly what the CPU gives.

Where there is no other, `cpu:0` stands for one: torch takes it for the CPU, and all code that asks whether blocks are
computed elsewhere takes it for another device.
"""

import pytest
import torch

from tests.models import tiny
from tilepress.models import LoadedModel, compress_folder, compress_model, compress_to_folder, load_model, study_model
from tilepress.models import compress as compressing
from tilepress.models.device import find_device
from tilepress.models.registration import packed_layers, packed_modules
from tilepress.models.study_model import on_device

INT8 = {"format": "int8"}
RECIPES = [
    {"weights": {"format": "int4:g32"}},
    {"weights": {"format": "uint4:g32", "quantize": "gptq"}, "activations": INT8},
    {"weights": {"format": "int8:row", "density": 0.5, "prune": "sparsegpt"}, "activations": INT8},
    {"weights": {"format": "int4:g32", "quantize": "gptq", "target": "dense"}, "activations": {"format": "bfp:g32:m7"}},
    {"weights": {"format": "int4:row", "quantize": "learned-clip", "lm_head": "compress"}},
    {"weights": {"format": "int8:row", "density": 0.5, "prune": "wanda", "reconstruct": 8, "heal": 4}},
    {"weights": {"format": "int8:g32"}, "kv_cache": {"format": "bfp4", "smoothing": "offline"}},
    {"weights": {"format": "int8:g32"}, "activations": {"format": "anda:5%"}},
]
ELSEWHERE = "cuda" if torch.cuda.is_available() else "cpu:0"


@pytest.fixture
def elsewhere(monkeypatch):
    for module in (compressing, compress_to_folder, study_model):
        monkeypatch.setattr(module, "find_device", torch.device)
    return ELSEWHERE


def make(family):
    return tiny.make("llama", num_attention_heads=2, num_key_value_heads=1) if family == "llama" else tiny.make(family)


@pytest.mark.parametrize(("family", "recipe"), [*(("llama", recipe) for recipe in RECIPES), ("qwen2", RECIPES[1])])
def test_nearly_what_the_cpu_gives(family, recipe, elsewhere):
    tokens, models = tiny.windows(4, 32), []
    for device in ("cpu", elsewhere):
        models.append(compress_model(make(family), recipe, windows=tokens, device=device))
    here, there = models
    assert {name: str(module.matrix.format) for name, module in packed_modules(here)} == {
        name: str(module.matrix.format) for name, module in packed_modules(there)
    }
    assert all(not tensor.is_cuda for tensor in (*there.parameters(), *there.buffers()))
    activations = [[layer.activations for _, layer in packed_layers(model)] for model in models]
    assert activations[0] == activations[1]
    with torch.no_grad():
        given, wanted, plain = (model(tokens).logits for model in (there, here, make(family)))
    lost = [float((one - plain).square().mean()) for one in (given, wanted)]
    assert lost[0] == pytest.approx(lost[1], rel=0.2)
    assert float((given - wanted).square().mean()) < 0.3 * lost[1] + 1e-8


def test_a_folder_is_compressed_as_a_model_in_memory_is(tmp_path, elsewhere):
    folder, text = tiny.save(tmp_path / "model")
    calibration = {"text": str(text), "sequences": 4, "length": 16}
    recipe = RECIPES[5] | {"activations": INT8, "calibration": calibration}
    compress_folder(str(folder), tmp_path / "out", recipe, device=elsewhere)
    loaded = load_model(str(tmp_path / "out"))
    expected = compress_model(tiny.make("llama"), recipe, tokenizer=loaded.tokenizer, device=elsewhere).state_dict()
    given = loaded.model.state_dict()
    assert given.keys() == expected.keys() and all(torch.equal(given[name], expected[name]) for name in given)


@pytest.mark.parametrize("activations", ["fp", "int8", "bfp:g32:m7"])
def test_an_unpacked_model_rounds_what_the_packed_one_rounds(activations, elsewhere):
    recipe = {"weights": {"format": "int8:g32"}, "activations": {"format": activations}}
    tokens, model = tiny.windows(2, 32), compress_model(make("llama"), recipe)
    with torch.no_grad():
        packed = model(tokens).logits
        there = on_device(LoadedModel(model, None, "model"), elsewhere).model
        assert not list(packed_modules(there))
        given = there(tokens.to(elsewhere)).logits.cpu()
    torch.testing.assert_close(given, packed, rtol=1e-3, atol=1e-4)
    as_asked = on_device(LoadedModel(compress_model(make("llama"), recipe), None, "model"), elsewhere, "bfp:g64:m1")
    assert (as_asked.model(tokens.to(elsewhere)).logits.cpu() - packed).abs().max() > 0.01


@pytest.mark.parametrize(("name", "message"), [
    ("gpu9", "'gpu9' is no device"), ("meta", "not on 'meta'"), ("cuda:99", "there is no cuda:99 here"),
])  # fmt: skip
def test_devices_that_are_not_there(name, message):
    with pytest.raises(ValueError, match=message):
        find_device(name)
