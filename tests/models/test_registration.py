"""Compressed models in transformers: saved, loaded, generating, and refused where they are not whole."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, pipeline

from tests.models import tiny
from tilepress.models import compress_model
from tilepress.models.checksums import read_sums, write_sums
from tilepress.models.registration import TilepressConfig
from tilepress.nn import PackedLinear
from tilepress.tiles import DamagedError

RECIPE = {
    "weights": {"format": "int4:g32", "density": 0.5, "prune": "wanda", "lm_head": "compress"},
    "activations": {"format": "int8"},
}


@pytest.fixture(params=tiny.FAMILIES)
def compressed(request):
    return compress_model(tiny.make(request.param), RECIPE, windows=tiny.windows())


@pytest.fixture
def saved(tmp_path):
    model = compress_model(tiny.make("llama"), RECIPE, windows=tiny.windows())
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def assert_same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert tensor.dtype == b[name].dtype and torch.equal(tensor, b[name]), name


def generated(model, **options):
    """Two prompts of different lengths, padded on the left."""
    tokens = tiny.windows(2, 6)
    tokens[1, :3] = 0
    torch.manual_seed(0)
    return model.generate(tokens, attention_mask=(tokens != 0).long(), max_new_tokens=8, **options)


def test_save_and_load_keep_every_bit(compressed, tmp_path):
    compressed.save_pretrained(tmp_path / "a")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert_same_state(compressed, loaded)
    loaded.save_pretrained(tmp_path / "b")
    first, second = load_file(tmp_path / "a/model.safetensors"), load_file(tmp_path / "b/model.safetensors")
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
    assert (tmp_path / "a/config.json").read_bytes() == (tmp_path / "b/config.json").read_bytes()


def test_generation_is_the_same_before_and_after(compressed, tmp_path):
    compressed.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    for options in ({}, {"num_beams": 3}, {"do_sample": True, "top_k": 5}):
        assert torch.equal(generated(compressed, **options), generated(loaded, **options)), options


def test_shards_and_options(saved, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(saved)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 3
    for options in ({}, {"low_cpu_mem_usage": True}, {"device_map": "cpu"}, {"device_map": "auto"}):
        assert_same_state(model, AutoModelForCausalLM.from_pretrained(tmp_path / "shards", **options))


def test_a_pipeline(saved):
    made = pipeline("text-generation", model=str(saved), device="cpu")
    assert made("w5 w6", max_new_tokens=4, do_sample=False)[0]["generated_text"].startswith("w5 w6")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_another_type_leaves_packed_arrays_alone(saved, dtype):
    plain = AutoModelForCausalLM.from_pretrained(saved)
    loaded = AutoModelForCausalLM.from_pretrained(saved, dtype=dtype)
    for model in (loaded, AutoModelForCausalLM.from_pretrained(saved).to(dtype)):
        assert model.model.norm.weight.dtype == dtype
        for layer, other in zip(model.model.layers, plain.model.layers, strict=True):
            assert_same_state(layer.self_attn.q_proj, other.self_attn.q_proj)
        assert model(tiny.windows()).logits.dtype == dtype


def test_the_base_model_takes_its_part(saved):
    whole, base = AutoModelForCausalLM.from_pretrained(saved), AutoModel.from_pretrained(saved)
    assert_same_state(whole.model, base)


def test_dequantize_gives_an_ordinary_model(saved, tmp_path):
    packed, tokens = AutoModelForCausalLM.from_pretrained(saved), tiny.windows()
    before = packed(tokens).logits
    dense = packed.dequantize()
    assert not any(isinstance(module, PackedLinear) for module in dense.modules())
    assert (dense(tokens).logits - before).norm() < 0.1 * before.norm()
    dense.save_pretrained(tmp_path / "dense")
    assert "quantization_config" not in json.loads((tmp_path / "dense/config.json").read_text())


def test_packed_arrays_are_not_the_files(saved):
    model = AutoModelForCausalLM.from_pretrained(saved)
    layer, x = model.model.layers[0].mlp.up_proj, torch.randn(3, 64)
    before = layer(x)
    path = saved / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))  # in place, under transformers' mapping of it
    assert torch.equal(layer(x), before) and before.any()


WITHOUT_IMPORT = """
import sys, transformers
llama = sys.argv[1]
cases = [("LlamaForCausalLM", llama, {"dtype": "bfloat16"}), ("AutoModel", llama, {"low_cpu_mem_usage": True}),
        *(("AutoModelForCausalLM", folder, {}) for folder in sys.argv[1:])]
for loader, folder, options in cases:
    try:
        getattr(transformers, loader).from_pretrained(folder, **options)
        print("loaded by", loader)
    except RuntimeError as error:
        print(error)
assert "tilepress" not in sys.modules
import tilepress
print(type(transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]).lm_head).__name__)
"""


def test_without_tilepress_the_folder_does_not_load(saved, tmp_path):
    """No random weights: the `weight` of a packed layer has another shape than an ordinary layer's. And importing
    tilepress, after transformers, is all that is missing."""
    families = [family for family in tiny.FAMILIES if family != "llama"]
    for family in families:
        compress_model(tiny.make(family), {}).save_pretrained(tmp_path / family)
    command = [sys.executable, "-c", WITHOUT_IMPORT, str(saved), *(str(tmp_path / family) for family in families)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *refusals, after = done.stdout.splitlines()
    assert len(refusals) == 3 + len(families) and all(
        "`ignore_mismatched_sizes` to `False`, thus raising" in line for line in refusals
    )
    assert "Unknown quantization type, got tilepress" in done.stderr and after == "PackedLinear"


def damage(path, name, change):
    with safe_open(path, "pt") as file:
        arrays = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    change(arrays, name)
    save_file(arrays, path, {"format": "pt"})
    listed = read_sums(path.parent)
    listed.pop(path.name)  # so that layers are checked one by one
    write_sums(path.parent, listed)


def flip(arrays, name):
    arrays[name].view(-1).view(torch.uint8)[3] ^= 1


def shorten(arrays, name):
    arrays[name] = arrays[name][:-1].clone()


def drop(arrays, name):
    del arrays[name]


def swap(arrays, name):
    """Whole, but another layer's. Offsets are the same in both: each row keeps half its weights."""
    if name.endswith("offsets"):
        flip(arrays, name)
    other = name.replace("up_proj", "gate_proj").replace("layers.0", "layers.1")
    arrays[name], arrays[other] = arrays[other], arrays[name]


@pytest.mark.parametrize("part", ["codes", "mask", "scales", "weight", "offsets"])
@pytest.mark.parametrize("change", [flip, shorten, drop, swap])
@pytest.mark.filterwarnings("ignore")  # transformers reports missing tensors first
def test_damage_is_refused(saved, part, change):
    damage(saved / "model.safetensors", f"model.layers.0.mlp.up_proj.{part}", change)
    with pytest.raises(DamagedError, match=r"model.layers.\d.mlp.(up|gate)_proj.* is damaged"):
        AutoModelForCausalLM.from_pretrained(saved)


def test_a_forged_description_gets_no_further_than_the_arrays_allow(saved):
    """Checksums fitted to arrays that contradict each other: offsets that point past the codes."""
    import hashlib

    def forge(arrays, name):
        text = json.loads(arrays[f"{name}.weight"].numpy().tobytes())
        arrays[f"{name}.offsets"] += torch.arange(len(arrays[f"{name}.offsets"])) * 10**6
        text["sha256"]["offsets"] = hashlib.sha256(arrays[f"{name}.offsets"].numpy().tobytes()).hexdigest()
        arrays[f"{name}.weight"] = torch.frombuffer(bytearray(json.dumps(text).encode()), dtype=torch.int8).clone()

    damage(saved / "model.safetensors", "model.layers.0.mlp.up_proj", forge)
    with pytest.raises(DamagedError, match=r"up_proj.*is damaged: codes must be"):
        AutoModelForCausalLM.from_pretrained(saved)


def test_other_versions_and_devices_are_refused(saved):
    with pytest.raises(ValueError, match="packed layers compute on the CPU, and device_map wants cuda"):
        AutoModelForCausalLM.from_pretrained(saved, device_map="cuda")
    with pytest.raises(ValueError, match="written in version 1 of tilepress' folders and this tilepress reads 2"):
        TilepressConfig({}, {}, {}, version=1)
    with pytest.raises(ValueError, match="require the model to be pre-quantized"):
        AutoModelForCausalLM.from_pretrained(_plain(saved.parent), quantization_config=TilepressConfig({}, {}, {}))


def _plain(parent):
    tiny.make("llama").save_pretrained(parent / "plain")
    return parent / "plain"
