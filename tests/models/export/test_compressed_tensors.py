"""Folders of compressed-tensors: the same weights, by our reader and by the library's own code."""

import json

import pytest
import torch

from tests.models import tiny
from tests.models.export.models import compressed
from tests.models.quantized import folders
from tilepress.models import compress_folder, load_model
from tilepress.models.export import ExportError, export_folder
from tilepress.models.quantized import Held, open_checkpoint
from tilepress.models.registration import packed_layers
from tilepress.tiles import unpack

FORMATS = {
    "int4:g32": ("pack-quantized", "int4:g32"),
    "int3:g32": ("pack-quantized", "int4:g32"),
    "int8:g32": ("pack-quantized", "int8:g32"),
    "int4:g32:e8m0": ("pack-quantized", "int4:g32"),
    "int8:row": ("pack-quantized", "int8:row"),
    "e4m3:row": ("float-quantized", "e4m3:row"),
    "mxfp4": ("mxfp4-pack-quantized", "mxfp4"),
}


def weights_of(small):
    return {name: unpack(layer.matrix) for name, layer in packed_layers(load_model(str(small)).model)}


def assert_equal(out, expected, format):
    shards = open_checkpoint(out)
    assert {name.removesuffix(".weight") for name in shards.quantised} == expected.keys()
    for name, weight in expected.items():
        held = shards.source_weight(f"{name}.weight")
        assert isinstance(held, Held) and str(held.format) == format and torch.equal(held.dense(), weight)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_that_it_has(tmp_path, format):
    small, (theirs, back) = compressed(tmp_path, {"format": format}), FORMATS[format]
    done = export_folder(small, tmp_path / "out", "compressed-tensors")
    stated = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert stated["format"] == theirs and not done.notes and done.layers == 21
    assert stated["config_groups"]["group_0"]["targets"] == ["Linear"] and stated["ignore"] == ["lm_head"]
    assert_equal(tmp_path / "out", weights_of(small), back)
    assert (tmp_path / "out/tokenizer.json").read_bytes() == (small / "tokenizer.json").read_bytes()


def test_eight_bits_of_weights_and_activations(tmp_path):
    small = compressed(tmp_path, {"format": "int8:row"}, "int8")
    export_folder(small, tmp_path / "out", "compressed-tensors")
    stated = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert stated["format"] == "int-quantized"
    assert stated["config_groups"]["group_0"]["input_activations"]["strategy"] == "token"
    assert_equal(tmp_path / "out", weights_of(small), "int8:row")


def test_dropped_weights_are_zeros(tmp_path):
    small = compressed(tmp_path, {"format": "int4:g32", "density": 0.5})
    done = export_folder(small, tmp_path / "out", "compressed-tensors")
    assert done.notes == ["21 sparse layers are written dense, their dropped weights as zeros"]
    assert_equal(tmp_path / "out", weights_of(small), "int4:g32")


def test_zero_points_that_are_codes(tmp_path):
    """A GPTQ checkpoint, through our folder, to another tool's: the same weights still."""
    folder, expected = folders.gptq(tmp_path / "gptq")
    compress_folder(str(folder), tmp_path / "small", {}, announce=lambda _: None)
    export_folder(tmp_path / "small", tmp_path / "out", "compressed-tensors")
    assert_equal(tmp_path / "out", expected, "uint4:g32")


def test_several_formats_in_one_model(tmp_path):
    other = [{"match": "*.down_proj", "format": "int8:g32"}, {"match": "*.up_proj", "format": "bf16"}]
    small = compressed(tmp_path, {"format": "int4:g32", "override": other})
    export_folder(small, tmp_path / "out", "compressed-tensors")
    stated = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert {one["weights"]["num_bits"] for one in stated["config_groups"].values()} == {4, 8}
    assert "model.layers.0.mlp.up_proj" in stated["ignore"]
    shards, expected = open_checkpoint(tmp_path / "out"), weights_of(small)
    for name, weight in expected.items():
        assert torch.equal(shards[f"{name}.weight"].float(), weight)


@pytest.mark.parametrize("format", ["int4:g32", "int8:row", "uint4:g32"])
def test_the_library_reads_the_same(tmp_path, format):
    """By its own unpacking: the codes are ours, and its zero points."""
    helpers = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    if format == "uint4:g32":
        folder, expected = folders.gptq(tmp_path / "gptq")
        compress_folder(str(folder), tmp_path / "small", {}, announce=lambda _: None)
        small = tmp_path / "small"
    else:
        small = compressed(tmp_path, {"format": format})
        expected = weights_of(small)
    export_folder(small, tmp_path / "out", "compressed-tensors")
    stored, bits = tiny_tensors(tmp_path / "out"), 8 if format == "int8:row" else 4
    for name, weight in expected.items():
        parts = {part: stored[f"{name}.{part}"] for part in ("weight_packed", "weight_scale", "weight_shape")}
        shape, scales = torch.Size(parts["weight_shape"].tolist()), parts["weight_scale"].float()
        codes = helpers.unpack_from_int32(parts["weight_packed"], bits, shape).float()
        size = shape[1] // scales.shape[1]
        if f"{name}.weight_zero_point" in stored:
            packed = stored[f"{name}.weight_zero_point"]
            zeros = helpers.unpack_from_int32(packed, bits, torch.Size(scales.shape), packed_dim=0)
            codes = codes - zeros.float().repeat_interleave(size, 1)
        assert torch.equal(codes * scales.repeat_interleave(size, 1), weight)


def tiny_tensors(folder):
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    return {name: tensor for path in files for name, tensor in load_file(path).items()}


@pytest.mark.parametrize(
    ("format", "message"),
    [
        (
            "uint4:g32",
            r"is uint4:g32, and compressed-tensors cannot hold it to the bit \(zero points between the c",
        ),
        ("nf4:g64", r"no scheme of it has nf4 in such groups\): compress the model with --weights int4:g32, the near"),
        ("bf8:row", r"with --weights e4m3:row, the nearest format that compressed-tensors has"),
    ],
)
def test_formats_without_a_counterpart(tmp_path, format, message):
    small = compressed(tmp_path, {"format": format})
    with pytest.raises(ExportError, match=message):
        export_folder(small, tmp_path / "out", "compressed-tensors")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_what_is_not_exported(tmp_path):
    dense, _ = tiny.save(tmp_path / "dense")
    with pytest.raises(ExportError, match="is not a folder that tilepress wrote: compress the model first"):
        export_folder(dense, tmp_path / "out", "gguf")
    with pytest.raises(ExportError, match="are exported to gguf or compressed-tensors, not to 'onnx'"):
        export_folder(dense, tmp_path / "out", "onnx")
    small = compressed(tmp_path / "other")
    with pytest.raises(ExportError, match=r"dense exists: choose another place, or remove it"):
        export_folder(small, dense, "compressed-tensors")
