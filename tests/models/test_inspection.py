"""What headers say: of compressed folders, dense ones and GGUF files, held against what `compress` and gguf know."""

import json
import subprocess
import sys

import pytest
from gguf.constants import GGML_QUANT_SIZES

from tests.models import tiny
from tests.models.gguf_files import write_gguf
from tilepress.models import ModelUnavailableError, compress_folder
from tilepress.models.inspection.compressed import read_compressed
from tilepress.models.inspection.dense import read_dense
from tilepress.models.inspection.gguf_file import TYPES, read_gguf
from tilepress.tiles import DamagedError


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_layers_and_fates_are_those_of_compress(family, tmp_path):
    folder, _ = tiny.save(tmp_path / "model", family)
    outcome = compress_folder(str(folder), tmp_path / "out", {"weights": {"density": 0.5}})
    model, dense = read_compressed(tmp_path / "out"), read_dense(folder)
    read = {one.name: (one.format, one.shape, one.nbytes, one.activations, one.tied) for one in model.layers}
    assert read == {
        one.name: (one.format, tuple(one.shape), one.nbytes, one.activations, one.tied) for one in outcome.layers
    }
    assert model.nbytes == outcome.nbytes and model.bits_per_weight == pytest.approx(outcome.bits_per_weight, rel=0.2)
    packed = {one.name.removesuffix(".weight") for one in dense.tensors if one.fate.startswith("packed")}
    assert packed == {one.name for one in outcome.layers}
    kept = sum(one.numbers for one in model.kept.values())
    assert kept == sum(one.numbers for one in dense.tensors if not one.fate.startswith("packed")) > 0
    assert model.damage() is None


def test_what_contradicts_itself_is_refused(llama_folder, tmp_path):
    compress_folder(str(llama_folder[0]), tmp_path / "out", {})
    weights = next((tmp_path / "out").glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert f"{weights.name} is damaged" in read_compressed(tmp_path / "out").damage()
    weights.write_bytes(content[:-1])
    with pytest.raises(DamagedError, match=r"is not a whole safetensors file"):
        read_compressed(tmp_path / "out")
    weights.write_bytes(content)
    config = json.loads((tmp_path / "out/config.json").read_text())
    config["quantization_config"]["layers"]["model.layers.9.mlp.up_proj"] = {"streams": {}, "activations": "fp"}
    (tmp_path / "out/config.json").write_text(json.dumps(config))
    with pytest.raises(DamagedError, match=r"config.json and its weights disagree .*compress it again"):
        read_compressed(tmp_path / "out")


@pytest.mark.parametrize("architecture, packed, router", [("llama", 7, 0), ("qwen3moe", 7, 1)])
def test_a_gguf_file(tmp_path, architecture, packed, router):
    path = tmp_path / "model.gguf"
    weights = write_gguf(path, architecture, blocks=2)
    model = read_gguf(path)
    assert model.facts["architecture"] == architecture and {one.type for one in model.tensors} == {"F32"}
    assert {one.name: one.shape for one in model.tensors} == {f"{name}.weight": w.shape for name, w in weights.items()}
    fates = {one.name: one.fate for one in model.tensors}
    assert fates["token_embd.weight"] == "packed as embedding" and fates["output.weight"] == "kept: output layer"
    assert sum(fate == "packed" for fate in fates.values()) == 2 * packed
    assert sum(one.fate == "kept" and len(one.shape) == 2 for one in model.tensors) == 2 * router
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelUnavailableError, match=r"no whole GGUF file: it ends before its last tensor does"):
        read_gguf(path)


def test_types_of_ggml_are_those_of_its_package():
    theirs = {int(type): (type.name, *sizes) for type, sizes in GGML_QUANT_SIZES.items()}
    assert {number: TYPES.get(number) for number in theirs} == theirs


LIGHT = """
import sys
from tilepress.cli import main
sys.argv = ["tilepress", "inspect", sys.argv[1]]
try:
    main()
finally:
    print("torch" in sys.modules or "transformers" in sys.modules, file=sys.stderr)
"""


def test_inspecting_imports_no_torch(llama_folder, tmp_path):
    compress_folder(str(llama_folder[0]), tmp_path / "out", {})
    for path, code in ((tmp_path / "out", 0), (llama_folder[0], 0), (tmp_path / "nosuch", 1)):
        done = subprocess.run([sys.executable, "-c", LIGHT, str(path)], capture_output=True, text=True)
        assert done.returncode == code and done.stderr.endswith("False\n"), done.stderr
    assert done.stderr.startswith(f"tilepress: error: there is no file or folder {tmp_path}/nosuch: give one")
